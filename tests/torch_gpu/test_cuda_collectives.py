"""Every collective on CUDA tensors, for types, sizes and layouts, against what is computed here."""
import pytest
import torch
import torch.distributed as dist

from bodies import TORCH, every_rank, needs_torch_2, torch_at_least
from gpu import ON_GPU, expect, needs_gpu, ramp, ramps, total

DTYPES = [torch.float32, torch.float64, torch.float16, torch.bfloat16, torch.int8, torch.uint8, torch.int16,
          torch.int32, torch.int64, torch.complex64]
MOVED = DTYPES + [torch.bool] + ([torch.float8_e4m3fn, torch.float8_e5m2] if TORCH >= (2, 3) else [])
COUNTS = [0, 1, 7, 1000, 70001]

typed = pytest.mark.parametrize("dtype", DTYPES, ids=lambda dtype: str(dtype).split(".")[1])
moved = pytest.mark.parametrize("dtype", MOVED, ids=lambda dtype: str(dtype).split(".")[1])


def bits(tensor):
    """Of types that torch cannot compare, too."""
    return tensor.contiguous().view(torch.uint8) if tensor.numel() else torch.zeros(0, dtype=torch.uint8)


# ---- reductions

@every_rank(2, 4)
@typed
def test_all_reduce_sums(me, dtype):
    for count in COUNTS:
        tensor = ramp(me, count, dtype)
        dist.all_reduce(tensor)
        expect(tensor, total(me, count, dtype))


OPERATIONS = {"max": lambda parts: torch.stack(parts).amax(0), "min": lambda parts: torch.stack(parts).amin(0),
              "product": lambda parts: torch.stack(parts).prod(0), "avg": lambda parts: torch.stack(parts).mean(0)}


@every_rank(2, 4)
@pytest.mark.parametrize("name", sorted(OPERATIONS))
def test_all_reduce_by_other_operations(me, name):
    tensor = ramp(me, 1001)
    dist.all_reduce(tensor, op=getattr(dist.ReduceOp, name.upper()))
    expect(tensor, OPERATIONS[name](ramps(me, 1001)))


@every_rank(2, 4)
@pytest.mark.parametrize("name", ["BAND", "BOR", "BXOR"])
def test_all_reduce_of_bits(me, name):
    tensor = ramp(me, 100, torch.int32)
    expected = ramps(me, 100, torch.int32)
    for part in expected[1:]:
        expected[0] = {"BAND": torch.bitwise_and, "BOR": torch.bitwise_or,
                       "BXOR": torch.bitwise_xor}[name](expected[0], part)
    dist.all_reduce(tensor, op=getattr(dist.ReduceOp, name))
    expect(tensor, expected[0])


@every_rank(2)
def test_all_reduce_scales_first(me):
    tensor = ramp(me, 100)
    dist.all_reduce(tensor, op=dist._make_nccl_premul_sum(0.5))
    expect(tensor, total(me, 100) / 2)


@every_rank(2, 4)
@typed
def test_reduce_to_every_root(me, dtype):
    for root in range(me.size):
        tensor = ramp(me, 1000, dtype)
        dist.reduce(tensor, root)
        if me.rank == root:
            expect(tensor, total(me, 1000, dtype))


@every_rank(2, 4)
@typed
def test_reduce_scatter(me, dtype):
    for count in (1, 1000, 9001):
        parts = [ramp(me, count, dtype) for _ in range(me.size)]
        for output in (torch.zeros(count, dtype=dtype, device=me.device),
                       torch.zeros(2, count, dtype=dtype, device=me.device)[1]):
            dist.reduce_scatter(output, parts)
            expect(output, total(me, count, dtype))
        output = torch.zeros(count, dtype=dtype, device=me.device)
        dist.reduce_scatter_tensor(output, torch.cat(parts))
        expect(output, total(me, count, dtype))


# ---- moving

@every_rank(2, 4)
@moved
def test_broadcast_from_every_root(me, dtype):
    for root in range(me.size):
        for count in (0, 1, 1000):
            tensor = ramp(me, count, dtype)
            dist.broadcast(tensor, root)
            expect(bits(tensor), bits(ramp(me, count, dtype, root)))


@every_rank(2, 4)
@moved
def test_all_gather(me, dtype):
    for count in (0, 1, 1000, 9001):
        parts = [torch.zeros(count, device=me.device).to(dtype) for _ in range(me.size)]
        dist.all_gather(parts, ramp(me, count, dtype))
        for found, wanted in zip(parts, ramps(me, count, dtype)):
            expect(bits(found), bits(wanted))


@every_rank(2, 4)
@moved
def test_all_gather_into_one_tensor(me, dtype):
    for count in (1, 1000, 9001):
        whole = torch.zeros(count * me.size, device=me.device).to(dtype)
        dist.all_gather_into_tensor(whole, ramp(me, count, dtype))
        expect(bits(whole), bits(torch.cat(ramps(me, count, dtype))))


@every_rank(2, 4)
def test_all_gather_of_parts_of_different_sizes(me):
    parts = [torch.zeros(10 + rank, device=me.device) for rank in range(me.size)]
    dist.all_gather(parts, ramp(me, 10 + me.rank))
    for rank, part in enumerate(parts):
        expect(part, ramp(me, 10 + rank, rank=rank))


@every_rank(2, 4)
def test_gather_and_scatter(me):
    for root in range(me.size):
        parts = [torch.zeros(50, device=me.device) for _ in range(me.size)] if me.rank == root else None
        dist.gather(ramp(me, 50), parts, dst=root)
        for rank, part in enumerate(parts or []):
            expect(part, ramp(me, 50, rank=rank))
        mine = torch.zeros(50, device=me.device)
        dist.scatter(mine, parts, src=root)
        expect(mine, ramp(me, 50))


@every_rank(2, 4)
def test_all_to_all(me):
    sent = [ramp(me, 5 + me.rank + to, rank=10 * me.rank + to) for to in range(me.size)]
    got = [torch.zeros(5 + source + me.rank, device=me.device) for source in range(me.size)]
    dist.all_to_all(got, sent)
    for source, part in enumerate(got):
        expect(part, ramp(me, 5 + source + me.rank, rank=10 * source + me.rank))
    splits_in, splits_out = [len(part) for part in sent], [len(part) for part in got]
    whole = torch.zeros(sum(splits_out), device=me.device)
    dist.all_to_all_single(whole, torch.cat(sent), splits_out, splits_in)
    expect(whole, torch.cat(got))
    even = torch.zeros(3 * me.size, device=me.device)
    dist.all_to_all_single(even, ramp(me, 3 * me.size))
    expect(even, torch.cat([ramp(me, 3 * me.size, rank=source)[3 * me.rank:3 * me.rank + 3]
                            for source in range(me.size)]))


@every_rank(2, 4)
def test_large_tensors(me):
    count = (2 << 20) + 3
    tensor = ramp(me, count)
    dist.all_reduce(tensor)
    expect(tensor, total(me, count))
    whole = torch.zeros(count * me.size, dtype=torch.uint8, device=me.device)
    dist.all_gather_into_tensor(whole, ramp(me, count, torch.uint8))
    expect(whole, torch.cat(ramps(me, count, torch.uint8)))


# ---- layouts, lists, and what else a tensor can be

@every_rank(2)
def test_tensors_that_are_not_contiguous(me):
    tensor = ramp(me, 600).view(20, 30).t()
    dist.all_reduce(tensor)
    expect(tensor, total(me, 600).view(20, 30).t())
    columns = torch.zeros(30, me.size, device=me.device)
    dist.all_gather(list(columns.unbind(1)), ramp(me, 60)[::2])
    expect(columns, torch.stack([part[::2] for part in ramps(me, 60)], dim=1))
    work = dist.broadcast(columns[:, 0], 0, async_op=True)
    work.wait()
    expect(columns[:, 0], ramp(me, 60, rank=0)[::2])


@every_rank(2, 4)
def test_coalesced_calls(me):
    tensors = [ramp(me, count) for count in (3, 1000, 5)]
    dist.all_reduce_coalesced(tensors)
    for tensor in tensors:
        expect(tensor, total(me, len(tensor)))


@torch_at_least(2, 3)
@every_rank(2, 4)
@pytest.mark.parametrize("later", [False, True], ids=["sync", "async"])
def test_calls_inside_of_a_coalescing_manager(me, later):
    manager = dist.distributed_c10d._coalescing_manager
    tensors = [ramp(me, count) for count in (3, 1000)]
    with manager(async_ops=later) as under_way:
        for tensor in tensors:
            dist.all_reduce(tensor)
    under_way.wait() if later else None
    for tensor in tensors:
        expect(tensor, total(me, len(tensor)))
    wholes = [torch.zeros(count * me.size, device=me.device) for count in (3, 1000)]
    with manager(device=me.device, async_ops=later) as under_way:
        for whole in wholes:
            dist.all_gather_into_tensor(whole, ramp(me, len(whole) // me.size))
    under_way.wait() if later else None
    for whole in wholes:
        expect(whole, torch.cat(ramps(me, len(whole) // me.size)))
    parts = [torch.zeros(count, device=me.device) for count in (3, 1000)]
    with manager(async_ops=later) as under_way:
        for part, whole in zip(parts, wholes):
            dist.reduce_scatter_tensor(part, whole)
    under_way.wait() if later else None
    for part in parts:
        expect(part, me.size * ramp(me, len(part)))


@every_rank(2)
def test_sparse_tensors_are_summed(me):
    indices = torch.tensor([[me.rank, 3], [0, 1]])
    values = torch.tensor([1.0 + me.rank, 2.0])
    tensor = torch.sparse_coo_tensor(indices, values, (5, 2), device=me.device)
    dense = tensor.to_dense()
    dist.all_reduce(tensor)
    dist.all_reduce(dense)
    expect(tensor.to_dense(), dense)


@needs_gpu
@every_rank(2)
def test_one_call_takes_memory_of_one_kind(me):
    import tutti_torch
    with pytest.raises(tutti_torch.InvalidArgument):
        dist.all_gather([torch.zeros(2), torch.zeros(2)], torch.zeros(2, device=me.device))
    tensor = ramp(me, 10)  # and nothing came of it
    dist.all_reduce(tensor)
    expect(tensor, total(me, 10))


@every_rank(2, 4)
def test_cpu_and_cuda_tensors_take_turns_on_one_group(me):
    for count in range(1, 30):
        here, there = ramp(me, count).cpu(), ramp(me, count)
        works = [dist.all_reduce(there, async_op=True), dist.all_reduce(here, async_op=True)]
        for work in works:
            work.wait()
        expect(here, total(me, count))
        expect(there, total(me, count))


# ---- groups

@every_rank(2)
def test_objects_and_groups(me):
    found = [None] * me.size
    dist.all_gather_object(found, {"rank": me.rank})
    assert found == [{"rank": rank} for rank in range(me.size)]
    group = dist.new_group(list(range(me.size)))
    tensor = ramp(me, 100)
    dist.all_reduce(tensor, group=group)
    expect(tensor, total(me, 100))
    dist.destroy_process_group(group)


def ways_to_name_it(me):
    """The backend may be named with its devices, alone and beside others."""
    import tutti_torch
    sums = []
    names = ["tutti", "cpu:tutti,cuda:tutti"] + (["cuda:tutti", "cpu:gloo,cuda:tutti"] if ON_GPU else [])
    for turn, name in enumerate(names):
        dist.init_process_group(name, init_method=f"file://{me.folder}/store{turn}", rank=me.rank,
                                world_size=me.size)
        tensor = torch.ones(3, device=me.device)
        dist.all_reduce(tensor)
        assert "2 ranks" in tutti_torch.describe(), name
        sums.append(tensor[0].item())
        dist.destroy_process_group()
    return sums


@needs_torch_2
def test_ways_to_name_the_backend(lone_ranks):
    for sums in lone_ranks(2).run(ways_to_name_it):
        assert set(sums) == {2.0}
