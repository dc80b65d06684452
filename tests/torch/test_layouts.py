"""Tensors that are not a plain block of memory: strided, transposed, views, empty, overlapping in use."""
import pytest
import torch
import torch.distributed as dist

from bodies import every_rank, ramp, tutti_only


@tutti_only  # gloo refuses them
@every_rank(2, 3)
@pytest.mark.parametrize("kind", ["transposed", "every second", "column", "channels last"])
def test_all_reduce_of_a_strided_tensor_writes_through(me, kind):
    base = torch.zeros(4, 6, 2, 2)
    view = {"transposed": base[:, :, 0, 0].t(), "every second": base[:, ::2, 1, 1],
            "column": base[:, 3, 0, 1],
            "channels last": base.to(memory_format=torch.channels_last)}[kind]
    assert not view.is_contiguous()
    view.fill_(float(me.rank + 1))
    dist.all_reduce(view)
    wanted = float(sum(range(1, me.size + 1)))
    assert torch.equal(view, torch.full_like(view, wanted))
    if kind != "channels last":
        assert base.sum().item() == wanted * view.numel()  # nothing beside the view was written


@tutti_only
@every_rank(2, 3)
def test_broadcast_into_a_strided_tensor(me):
    base = torch.zeros(3, 4)
    if me.rank == 0:
        base.t().copy_(torch.arange(12.0).view(4, 3))
    dist.broadcast(base.t(), src=0)
    assert torch.equal(base.t(), torch.arange(12.0).view(4, 3))


@tutti_only
@every_rank(2, 3)
def test_gathers_into_strided_parts(me):
    table = torch.zeros(5, me.size)
    parts = [table[:, rank] for rank in range(me.size)]
    dist.all_gather(parts, ramp(me.rank, 5))
    for rank in range(me.size):
        assert torch.equal(table[:, rank], ramp(rank, 5))
    wide = torch.zeros(2, 5)
    wide[0] = ramp(me.rank, 5)
    table.zero_()
    dist.gather(wide.t()[:, 0], parts if me.rank == 0 else None, dst=0)
    if me.rank == 0:
        assert all(torch.equal(table[:, rank], ramp(rank, 5)) for rank in range(me.size))


@tutti_only
@every_rank(2, 3)
def test_scatter_reduce_and_all_to_all_of_strided_parts(me):
    table = torch.stack([ramp(rank, 5) for rank in range(me.size)], dim=1)
    columns = [table[:, rank] for rank in range(me.size)]
    mine = torch.zeros(5, 2)
    dist.scatter(mine[:, 1], columns if me.rank == 0 else None, src=0)
    assert torch.equal(mine[:, 1], ramp(me.rank, 5)) and mine[:, 0].sum() == 0
    dist.reduce_scatter(mine[:, 0], columns)
    assert torch.equal(mine[:, 0], me.size * ramp(me.rank, 5))
    got = torch.zeros_like(table)
    dist.all_to_all([got[:, rank] for rank in range(me.size)], columns)
    assert torch.equal(got, torch.stack([ramp(me.rank, 5)] * me.size, dim=1))


@tutti_only
@every_rank(2)
def test_send_and_recv_of_strided_tensors(me):
    grid = torch.arange(20.0).view(4, 5)
    if me.rank == 0:
        dist.send(grid[:, 2], dst=1)
    else:
        got = torch.zeros(4, 3)
        dist.recv(got[:, 1], src=0)
        assert torch.equal(got[:, 1], grid[:, 2]) and got[:, 0].sum() == 0


@every_rank(2, 3)
def test_views_at_an_offset_leave_their_neighbours_alone(me):
    base = torch.full((100,), -1.0)
    for begin in (1, 3, 7, 50):
        view = base[begin:begin + 13]
        view.fill_(float(me.rank))
        dist.all_reduce(view)
        assert torch.equal(view, torch.full((13,), float(sum(range(me.size)))))
        assert base[begin - 1] == -1 and base[begin + 13] == -1
        base.fill_(-1.0)


@tutti_only
@every_rank(2, 3)
def test_in_place_gather_and_reduce_scatter(me):
    whole = torch.zeros(me.size, 4)
    whole[me.rank] = me.rank + 1
    dist.all_gather_into_tensor(whole, whole[me.rank])
    assert torch.equal(whole[:, 0], torch.arange(1.0, me.size + 1))
    dist.reduce_scatter_tensor(whole[me.rank], whole)
    assert torch.equal(whole[me.rank], torch.full((4,), float(me.size * (me.rank + 1))))


@every_rank(1, 2, 3)
def test_empty_tensors_are_welcome(me):
    nothing = torch.zeros(0)
    dist.all_reduce(nothing)
    dist.broadcast(nothing, src=0)
    dist.reduce(nothing, dst=0)
    assert nothing.numel() == 0


@tutti_only
@every_rank(1, 2, 3)
def test_empty_tensors_in_every_other_collective(me):
    nothing = torch.zeros(0, 3)
    parts = [torch.zeros(0, 3) for _ in range(me.size)]
    dist.all_gather(parts, nothing)
    dist.gather(nothing, parts if me.rank == 0 else None, dst=0)
    dist.scatter(nothing, parts if me.rank == 0 else None, src=0)
    dist.reduce_scatter(nothing, parts)
    dist.all_to_all(parts, [torch.zeros(0, 3) for _ in range(me.size)])
    dist.all_to_all_single(torch.zeros(0), torch.zeros(0))
    dist.all_gather_into_tensor(torch.zeros(0), torch.zeros(0))
    dist.reduce_scatter_tensor(torch.zeros(0), torch.zeros(0))
    if me.size > 1:
        if me.rank == 0:
            dist.send(nothing, dst=1)
        elif me.rank == 1:
            dist.recv(nothing, src=0)
    check = torch.ones(1)
    dist.all_reduce(check)
    assert check.item() == me.size


@tutti_only
@every_rank(2)
def test_tensors_that_require_gradients_may_be_sent(me):
    tensor = torch.ones(3, requires_grad=True)
    with torch.no_grad():
        dist.all_reduce(tensor)
    assert torch.equal(tensor.detach(), torch.full((3,), float(me.size)))
