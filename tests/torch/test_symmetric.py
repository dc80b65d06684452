"""tutti_torch.empty: tensors in memory that all ranks of the host have mapped."""
import pytest
import torch
import torch.distributed as dist

from bodies import BACKEND, every_rank, ramp

pytestmark = pytest.mark.skipif(BACKEND != "tutti", reason=f"{BACKEND} has no symmetric memory")


def empty(*size, **options):
    import tutti_torch
    return tutti_torch.empty(*size, **options)


@every_rank(1, 2, 4)
@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "int64", "uint8"])
def test_a_tensor_like_any_other(me, dtype):
    tensor = empty(3, 5, dtype=getattr(torch, dtype))
    assert tensor.shape == (3, 5) and tensor.dtype == getattr(torch, dtype)
    assert tensor.is_contiguous() and tensor.device.type == "cpu"
    tensor.copy_(ramp(me.rank, 15, tensor.dtype).view(3, 5))
    dist.all_reduce(tensor)
    expected = sum(ramp(rank, 15, torch.float64) for rank in range(me.size))
    assert torch.equal(tensor.double().flatten(), expected)


@every_rank(2)
def test_shapes_as_torch_takes_them(me):
    assert empty(4).shape == (4,)
    assert empty((2, 3)).shape == (2, 3)
    assert empty([2, 3]).shape == (2, 3)
    assert empty(torch.Size([2, 2])).dtype == torch.get_default_dtype()
    assert empty(0).numel() == 0


@every_rank(2, 3)
@pytest.mark.parametrize("count", [1, 1000, 300_000])
def test_every_collective_on_symmetric_memory(me, count):
    whole, part = empty(me.size * count), empty(count)
    part.copy_(ramp(me.rank, count))
    dist.all_gather_into_tensor(whole, part)
    assert torch.equal(whole, torch.cat([ramp(rank, count) for rank in range(me.size)]))
    dist.reduce_scatter_tensor(part, whole)
    assert torch.equal(part, me.size * ramp(me.rank, count))
    dist.broadcast(part, src=me.size - 1)
    assert torch.equal(part, me.size * ramp(me.size - 1, count))
    exchanged = empty(me.size * count)
    dist.all_to_all_single(exchanged, whole)
    assert torch.equal(exchanged, torch.cat([ramp(me.rank, count)] * me.size))


@every_rank(2)
def test_views_and_slices_are_reduced_where_they_lie(me):
    tensor = empty(100)
    tensor.fill_(-1.0)
    view = tensor[10:30]
    view.fill_(float(me.rank + 1))
    dist.all_reduce(view)
    assert torch.equal(tensor[10:30], torch.full((20,), 3.0))
    assert tensor[9] == -1 and tensor[30] == -1


@every_rank(2)
def test_one_rank_with_symmetric_and_one_with_plain_memory(me):
    symmetric = empty(1000)
    tensor = symmetric if me.rank == 0 else torch.empty(1000)
    tensor.copy_(ramp(me.rank, 1000))
    dist.all_reduce(tensor)
    assert torch.equal(tensor, ramp(0, 1000) + ramp(1, 1000))


@every_rank(3)
def test_memory_of_a_group(me):
    group = dist.new_group([0, 2])
    if me.rank in (0, 2):
        tensor = empty(10, group=group)
        tensor.fill_(float(me.rank))
        dist.all_reduce(tensor, group=group)
        assert tensor[0].item() == 2.0
    dist.barrier()


@every_rank(2)
def test_the_memory_lives_as_long_as_its_views(me):
    view = empty(1000)[100:200]
    view.fill_(1.0)
    dist.all_reduce(view)
    assert view.sum().item() == 200


@every_rank(2)
def test_memory_comes_and_goes(me):
    for _ in range(20):
        tensor = empty(100_000)
        tensor.fill_(1.0)
        dist.all_reduce(tensor)
        assert tensor[99_999].item() == 2.0


def outlive(me):
    tensor = empty(1000)
    tensor.fill_(1.0)
    dist.all_reduce(tensor)
    dist.destroy_process_group()
    return tensor.sum().item()


def test_memory_outlives_its_group(lone_world):
    assert lone_world(2).run(outlive) == [2000.0, 2000.0]


@every_rank(2)
def test_gradients_in_symmetric_memory(me):
    model = torch.nn.Linear(8, 4)
    flat = empty(sum(parameter.numel() for parameter in model.parameters()))
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.fill_(0.5)
    begin = 0
    flat.zero_()
    for parameter in model.parameters():
        parameter.grad = flat[begin:begin + parameter.numel()].view_as(parameter)
        begin += parameter.numel()
    model(torch.full((2, 8), float(me.rank + 1))).sum().backward()
    dist.all_reduce(flat)
    assert torch.equal(model.weight.grad, torch.full((4, 8), 6.0))
