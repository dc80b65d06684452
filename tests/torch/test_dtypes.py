"""Every collective on every dtype, and every reduction on every dtype that it makes sense for."""
import pytest
import torch
import torch.distributed as dist

from bodies import BACKEND, TORCH, every_rank, ramp, tutti_only

FLOATS = ["float16", "bfloat16", "float32", "float64"]
INTEGERS = ["uint8", "int8", "int16", "int32", "int64"]
WIDE_UNSIGNED = [name for name in ("uint16", "uint32", "uint64") if hasattr(torch, name)]
COMPLEX = ["complex64", "complex128"]
EIGHT_BITS = [name for name in ("float8_e4m3fn", "float8_e5m2") if hasattr(torch, name)]
MOVED = FLOATS + INTEGERS + ["bool"] + COMPLEX + WIDE_UNSIGNED + EIGHT_BITS
GLOO_KNOWS = ["float16", "float32", "float64", "uint8", "int8", "int32", "int64"]
COUNT = 37  # no multiple of any vector's width


def known(names):
    return names if BACKEND == "tutti" else [name for name in names if name in GLOO_KNOWS]


def values(dtype, rank, count=COUNT):
    dtype = getattr(torch, dtype)
    if dtype == torch.bool:
        return (torch.arange(count) + rank) % 3 == 0
    if dtype.is_complex:
        return torch.complex(ramp(rank, count, torch.float64),
                             ramp(rank + 3, count, torch.float64)).to(dtype)
    return ramp(rank, count).to(dtype)


def equal(left, right):
    """torch.equal, for dtypes that it does not know too."""
    return left.shape == right.shape and left.dtype == right.dtype and torch.equal(
        torch.view_as_real(left) if left.is_complex() else left.view(torch.uint8),
        torch.view_as_real(right) if right.is_complex() else right.view(torch.uint8))


def blank(dtype, count=COUNT):
    return torch.zeros(count).to(getattr(torch, dtype))


@every_rank(1, 2, 3)
@pytest.mark.parametrize("dtype", known(MOVED))
def test_broadcast(me, dtype):
    root = me.size - 1
    tensor = values(dtype, me.rank)
    dist.broadcast(tensor, src=root)
    assert equal(tensor, values(dtype, root))


@every_rank(1, 2, 3)
@pytest.mark.parametrize("dtype", known(MOVED))
def test_gathers_and_scatter(me, dtype):
    expected = [values(dtype, rank) for rank in range(me.size)]
    parts = [blank(dtype) for _ in range(me.size)]
    dist.all_gather(parts, values(dtype, me.rank))
    assert all(map(equal, parts, expected))
    parts = [blank(dtype) for _ in range(me.size)] if me.rank == 0 else None
    dist.gather(values(dtype, me.rank), parts, dst=0)
    assert me.rank != 0 or all(map(equal, parts, expected))
    mine = blank(dtype)
    dist.scatter(mine, parts, src=0)
    assert equal(mine, expected[me.rank])


@tutti_only
@every_rank(1, 2, 3)
@pytest.mark.parametrize("dtype", MOVED)
def test_all_to_all_and_gather_into_one_tensor(me, dtype):
    given = torch.cat([values(dtype, me.rank + to) for to in range(me.size)])
    got = blank(dtype, COUNT * me.size)
    dist.all_to_all_single(got, given)
    expected = torch.cat([values(dtype, source + me.rank) for source in range(me.size)])
    assert equal(got, expected)
    dist.all_gather_into_tensor(got, values(dtype, me.rank))
    assert equal(got, torch.cat([values(dtype, rank) for rank in range(me.size)]))


@every_rank(2, 3)
@pytest.mark.parametrize("dtype", known(MOVED))
def test_send_and_recv(me, dtype):
    if me.rank == 0:
        dist.send(values(dtype, 5), dst=1)
    elif me.rank == 1:
        tensor = blank(dtype)
        dist.recv(tensor, src=0)
        assert equal(tensor, values(dtype, 5))


def expected_reduction(op, dtype, size):
    """A left fold over the ranks in f64 or i64; every value used is exact in every dtype."""
    exact = torch.float64 if getattr(torch, dtype).is_floating_point else torch.int64
    parts = [reducible(op, dtype, rank).to(exact) for rank in range(size)]
    folds = {"SUM": torch.add, "PRODUCT": torch.mul, "MIN": torch.minimum, "MAX": torch.maximum,
             "BAND": torch.bitwise_and, "BOR": torch.bitwise_or, "BXOR": torch.bitwise_xor}
    result = parts[0]
    for part in parts[1:]:
        result = folds[op](result, part)
    return result.to(getattr(torch, dtype))


def reducible(op, dtype, rank):
    if op == "PRODUCT":  # ones and twos: four of them stay below 127
        return (((torch.arange(COUNT) + rank) % 2) + 1).to(getattr(torch, dtype))
    return ramp(rank, COUNT, getattr(torch, dtype), step=1 + rank)


ARITHMETIC = ["SUM", "PRODUCT", "MIN", "MAX"]
BITWISE = ["BAND", "BOR", "BXOR"]
SUMMED = FLOATS + INTEGERS + (WIDE_UNSIGNED if TORCH >= (2, 4) else [])
PAIRS = [(op, dtype) for op in ARITHMETIC for dtype in known(SUMMED)] + \
        [(op, dtype) for op in BITWISE for dtype in known(INTEGERS)]


@every_rank(1, 2, 4)
@pytest.mark.parametrize("op,dtype", PAIRS)
def test_all_reduce(me, op, dtype):
    tensor = reducible(op, dtype, me.rank)
    dist.all_reduce(tensor, op=getattr(dist.ReduceOp, op))
    assert equal(tensor, expected_reduction(op, dtype, me.size))


@every_rank(3)
@pytest.mark.parametrize("op,dtype", PAIRS)
def test_reduce(me, op, dtype):
    tensor = reducible(op, dtype, me.rank)
    dist.reduce(tensor, dst=1, op=getattr(dist.ReduceOp, op))
    if me.rank == 1:
        assert equal(tensor, expected_reduction(op, dtype, me.size))


@tutti_only
@every_rank(1, 3)
@pytest.mark.parametrize("op,dtype", PAIRS)
def test_reduce_scatter(me, op, dtype):
    whole = torch.cat([reducible(op, dtype, me.rank)] * me.size)
    mine = blank(dtype)
    dist.reduce_scatter_tensor(mine, whole, op=getattr(dist.ReduceOp, op))
    assert equal(mine, expected_reduction(op, dtype, me.size))
    dist.reduce_scatter(mine.zero_(), list(whole.chunk(me.size)), op=getattr(dist.ReduceOp, op))
    assert equal(mine, expected_reduction(op, dtype, me.size))


@tutti_only
@every_rank(1, 2, 4)
@pytest.mark.parametrize("dtype", FLOATS)
def test_average(me, dtype):
    tensor = ramp(me.rank, COUNT, getattr(torch, dtype))
    dist.all_reduce(tensor, op=dist.ReduceOp.AVG)
    exact = sum(ramp(rank, COUNT, torch.float64) for rank in range(me.size)) / me.size
    assert equal(tensor, exact.to(getattr(torch, dtype)))


@tutti_only
@every_rank(2, 4)
@pytest.mark.parametrize("dtype", FLOATS)
def test_sum_of_premultiplied_values(me, dtype):
    from torch._C._distributed_c10d import _make_nccl_premul_sum
    tensor = ramp(me.rank, COUNT, getattr(torch, dtype))
    dist.all_reduce(tensor, op=_make_nccl_premul_sum(0.5))
    exact = sum(ramp(rank, COUNT, torch.float64) for rank in range(me.size)) / 2
    assert equal(tensor, exact.to(getattr(torch, dtype)))


@tutti_only
@every_rank(1, 2, 3)
@pytest.mark.parametrize("op,fold", [("SUM", "logical_or"), ("MAX", "logical_or"),
                                     ("PRODUCT", "logical_and"), ("MIN", "logical_and"),
                                     ("BAND", "logical_and"), ("BOR", "logical_or"),
                                     ("BXOR", "logical_xor")])
def test_booleans_stay_booleans(me, op, fold):
    tensor = values("bool", me.rank)
    dist.all_reduce(tensor, op=getattr(dist.ReduceOp, op))
    expected = values("bool", 0)
    for rank in range(1, me.size):
        expected = getattr(torch, fold)(expected, values("bool", rank))
    assert tensor.view(torch.uint8).max() <= 1
    assert torch.equal(tensor, expected)


@every_rank(1, 2, 3)
@pytest.mark.parametrize("dtype", COMPLEX)
def test_complex_sums(me, dtype):
    tensor = values(dtype, me.rank)
    dist.all_reduce(tensor)
    assert torch.equal(tensor, sum(values(dtype, rank) for rank in range(me.size)))


@every_rank(2)
@pytest.mark.parametrize("op", ["MAX", "MIN", "PRODUCT"])
def test_complex_numbers_have_no_order(me, op):
    with pytest.raises((RuntimeError, ValueError)):
        dist.all_reduce(values("complex64", me.rank), op=getattr(dist.ReduceOp, op))
    dist.barrier()  # the refusal was local; the group is as good as before


@tutti_only
@every_rank(2)
@pytest.mark.parametrize("op", BITWISE)
def test_floats_have_no_bits_to_combine(me, op):
    with pytest.raises((RuntimeError, ValueError, TypeError)):
        dist.all_reduce(torch.ones(4), op=getattr(dist.ReduceOp, op))


@every_rank(2, 4)
def test_not_a_number_and_infinity_pass_through(me):
    tensor = torch.tensor([float("nan"), float("inf"), -float("inf"), 1.0]) if me.rank == 0 \
        else torch.ones(4)
    dist.all_reduce(tensor)
    assert torch.isnan(tensor[0]) and tensor[1] == float("inf") and tensor[2] == -float("inf")
    assert tensor[3] == me.size
