"""Collectives with a gradient: torch.distributed.nn."""
import pytest
import torch
import torch.distributed as dist

from bodies import every_rank, ramp, tutti_only

functional = pytest.importorskip("torch.distributed.nn.functional")


@every_rank(1, 2, 3)
def test_all_reduce_sums_gradients_too(me):
    x = ramp(me.rank, 4).requires_grad_()
    y = functional.all_reduce(x)
    assert torch.equal(y.detach(), sum(ramp(rank, 4) for rank in range(me.size)))
    (y * (me.rank + 1)).sum().backward()
    assert torch.equal(x.grad, torch.full((4,), float(sum(range(1, me.size + 1)))))


@tutti_only
@every_rank(2, 3)
def test_all_gather_gives_each_rank_its_gradient(me):
    x = ramp(me.rank, 3).requires_grad_()
    parts = functional.all_gather(x)
    assert all(torch.equal(part.detach(), ramp(rank, 3)) for rank, part in enumerate(parts))
    (sum((index + 1) * part.sum() for index, part in enumerate(parts))).backward()
    assert torch.equal(x.grad, torch.full((3,), float(me.size * (me.rank + 1))))


@every_rank(2, 3)
def test_broadcast_sums_gradients_at_the_root(me):
    x = ramp(me.rank, 3).requires_grad_()
    y = functional.broadcast(x, 0)
    assert torch.equal(y.detach(), ramp(0, 3))
    (y * 2).sum().backward()
    assert torch.equal(x.grad, torch.full((3,), 2.0 * me.size if me.rank == 0 else 0.0))


@tutti_only
@every_rank(2, 3)
def test_all_to_all_sends_gradients_back(me):
    given = [ramp(10 * me.rank + to, 2).requires_grad_() for to in range(me.size)]
    got = functional.all_to_all([torch.zeros(2) for _ in range(me.size)], given)
    assert all(torch.equal(part.detach(), ramp(10 * source + me.rank, 2))
               for source, part in enumerate(got))
    sum((me.rank + 1) * part.sum() for part in got).backward()
    for to, part in enumerate(given):
        assert torch.equal(part.grad, torch.full((2,), float(to + 1)))


@tutti_only
@every_rank(2, 3)
def test_reduce_scatter_gathers_gradients(me):
    given = [ramp(me.rank + part, 2).requires_grad_() for part in range(me.size)]
    mine = functional.reduce_scatter(torch.zeros(2), given)
    assert torch.equal(mine.detach(), sum(ramp(rank + me.rank, 2) for rank in range(me.size)))
    (mine * (me.rank + 1)).sum().backward()
    for part, tensor in enumerate(given):
        assert torch.equal(tensor.grad, torch.full((2,), float(part + 1)))
    dist.barrier()
