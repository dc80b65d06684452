"""Whose memory a tensor is: symmetric, of torch's allocator in its kinds, given back and used again."""
import pytest
import torch
import torch.distributed as dist

from bodies import every_rank
from gpu import ON_GPU, expect, needs_gpu, ramp, ramps, total


def empty_cache():
    if ON_GPU:
        torch.cuda.empty_cache()


@every_rank(2, 4)
def test_symmetric_memory(me):
    import tutti_torch
    bucket = tutti_torch.empty(3, 1000, device=me.device)
    assert bucket.device == me.device and bucket.shape == (3, 1000)
    expect(bucket, torch.zeros(3, 1000))
    bucket[1].copy_(ramp(me, 1000))
    dist.all_reduce(bucket[1])
    expect(bucket[1], total(me, 1000))
    expect(bucket[2], torch.zeros(1000))
    halves = tutti_torch.empty(10, dtype=torch.bfloat16, device=me.device)
    halves.fill_(me.rank + 1)
    dist.all_reduce(halves)
    expect(halves, torch.full((10,), me.size * (me.size + 1) / 2, dtype=torch.bfloat16))


@every_rank(2)
def test_symmetric_memory_comes_and_goes(me):
    import tutti_torch
    for turn in range(5):
        tensor = tutti_torch.empty(1 << 20, device=me.device)
        tensor.fill_(me.rank + 1 + turn)
        dist.all_reduce(tensor, async_op=True)
        del tensor
    dist.barrier()


@every_rank(2, 4)
def test_memory_that_torch_gives_back_between_uses(me):
    """Segments go, and others come to lie at their addresses: nobody may look at what was there."""
    places = set()
    for turn in range(6):
        for count in (3 << 20, (1 << 19) + turn, 300 + turn):
            tensor = ramp(me, count)
            places.add(tensor.data_ptr())
            dist.all_reduce(tensor)
            expect(tensor, total(me, count))
            del tensor
        empty_cache()
    assert len(places) < 18 or not ON_GPU, "no address was used twice: this tried nothing"


@needs_gpu
@every_rank(2)
def test_memory_that_goes_while_operations_are_under_way(me):
    tensors = [ramp(me, 1 << 20) for _ in range(4)]
    kept = ramp(me, 1 << 20)
    works = [dist.all_reduce(tensor, async_op=True) for tensor in (*tensors, kept)]
    del tensors[:2]
    torch.cuda.empty_cache()
    for work in works:
        work.wait()
    for tensor in (*tensors, kept):
        expect(tensor, total(me, 1 << 20))


def use_memory(me):
    """With whatever allocator the environment asks for."""
    for turn in range(4):
        for count in (100, 100_000, (3 << 20) + turn):
            tensor = ramp(me, count)
            dist.all_reduce(tensor)
            expect(tensor, total(me, count))
            whole = torch.zeros(count * me.size, device=me.device)
            dist.all_gather_into_tensor(whole, ramp(me, count))
            expect(whole, torch.cat(ramps(me, count)))
            got = torch.zeros(count, device=me.device)
            sending = dist.isend(ramp(me, count), me.next)
            dist.recv(got, me.previous)
            sending.wait()
            expect(got, ramp(me, count, rank=me.previous))
            del tensor, whole, got
        torch.cuda.empty_cache()
    dist.barrier()
    return torch.cuda.get_allocator_backend()


@needs_gpu
@pytest.mark.parametrize("kind", ["expandable_segments:True", "backend:cudaMallocAsync"])
def test_other_allocators(lone_world, kind):
    world = lone_world(2, environment={"PYTORCH_CUDA_ALLOC_CONF": kind, "PYTORCH_ALLOC_CONF": kind})
    expected = "cudaMallocAsync" if "Async" in kind else "native"
    assert world.run(use_memory) == [expected] * 2


@needs_gpu
@every_rank(2)
def test_a_rank_has_one_gpu(me):
    import tutti_torch
    if torch.cuda.device_count() < 2:
        pytest.skip("there is one GPU")
    with pytest.raises(tutti_torch.InvalidArgument):
        dist.all_reduce(torch.ones(3, device="cuda:1"))
