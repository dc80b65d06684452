"""What may be passed: contiguous or not, of which library or size; works; symmetric memory."""
import array
import asyncio
import ctypes
import gc
import pickle
import sys
import weakref

import numpy as np
from dlpack_producer import Produced
from values import same

import tutti


class Boxed:
    """Some other library's array: nothing but DLPack."""

    def __init__(self, values):
        self.values = values

    def __dlpack__(self, stream=None):
        return self.values.__dlpack__()

    def __dlpack_device__(self):
        return self.values.__dlpack_device__()


class Elsewhere(Boxed):
    def __dlpack_device__(self):
        return (8, 0)  # Metal


class Shown:
    """An object that lets numpy look at its memory, as data frames do."""

    def __init__(self, values):
        self.values = values

    def __array__(self, dtype=None, copy=None):
        return self.values


def raises(kind, call, *words):
    try:
        call()
    except kind as error:
        for word in words:
            assert word in str(error), f"'{word}' is not in: {error}"
        return error
    raise AssertionError(f"no {kind.__name__} was raised")


def check_numbers_and_lists_give_new_results(group):
    n = group.size
    total = tutti.all_reduce(group.rank + 0.5)
    assert isinstance(total, np.float64) and total == n * (n - 1) / 2 + n * 0.5
    assert isinstance(tutti.all_reduce(np.float32(1)), np.float32)
    same(tutti.all_reduce([1, 2, 3]), np.array([1, 2, 3]) * n)
    same(tutti.all_gather(group.rank), np.arange(n))
    assert tutti.broadcast(group.rank, n - 1) == n - 1
    same(tutti.all_reduce(np.array(2.0), out=np.array(0.0)), np.array(2.0 * n))


def check_whatever_has_the_buffer_protocol(group):
    n = group.size
    raw = b"\1\2\3"
    for made in (bytearray(raw), memoryview(bytearray(raw)), array.array("B", raw)):
        same(tutti.all_reduce(made), np.array([1, 2, 3], "u1") * n)
        assert tutti.all_reduce(made, out=made) is made
        assert bytes(made) == bytes([n, 2 * n, 3 * n])
    same(tutti.all_reduce(b"\1\2"), np.array([1, 2], "u1") * n)
    doubles = array.array("d", [1.5, group.rank])
    tutti.broadcast(root=0, out=doubles)
    assert doubles.tolist() == [1.5, 0]


def check_whatever_speaks_dlpack(group):
    x = np.arange(6, dtype="f4").reshape(2, 3)
    boxed = Boxed(x)
    same(tutti.all_reduce(boxed), np.arange(6, dtype="f4").reshape(2, 3) * group.size)
    assert tutti.all_reduce(boxed, out=boxed) is boxed
    same(x, np.arange(6, dtype="f4").reshape(2, 3) * group.size)
    turned = np.arange(6, dtype="i4").reshape(2, 3)
    tutti.all_reduce(Boxed(turned.T), out=Boxed(turned.T))
    same(turned, np.arange(6, dtype="i4").reshape(2, 3) * group.size)
    error = raises(tutti.Unsupported, lambda: tutti.all_reduce(Elsewhere(x)), "kind 8", "CUDA")
    assert isinstance(error, NotImplementedError)


def check_memory_that_objects_show_is_not_written(group):
    shown = Shown(np.ones(3))
    same(tutti.all_reduce(shown), np.full(3, float(group.size)))
    same(tutti.broadcast(shown, 0), np.ones(3))
    same(shown.values, np.ones(3))
    raises(tutti.InvalidArgument, lambda: tutti.all_reduce(shown, out=shown), "read-only", "Shown")


def check_dlpack_of_both_versions(group):
    if group.size > 127:
        return
    for versioned in (False, True):
        # bf16 1.0 is 3f80, 2.0 is 4000; fp8 e4m3 1.0 is 38, e5m2 1.0 is 3c; int16 with an offset
        n = float(group.size)
        for raw, kind, bits, expected in [
            (b"\x80\x3f\x00\x40", 4, 16, np.array([n, 2 * n], "f4").view("u4").astype("u8") >> 16),
            (b"\x38\x00", 10, 8, None), (b"\x3c\x00", 12, 8, None)]:
            made = Produced(raw, kind, bits, [2], versioned=versioned)
            assert tutti.all_reduce(made, "max", out=made) is made
            assert made.bytes() == raw  # the largest of equals
            if expected is not None:
                tutti.all_reduce(made, out=made)
                assert made.bytes() == expected.astype("u2").tobytes()
            gc.collect()
            assert made.taken == made.released > 0
        made = Produced(b"\7\0\1\0\2\0", 0, 16, [2, 1], versioned=versioned, offset=2)
        same(tutti.all_reduce(made), np.array([[1], [2]], "i2") * group.size)
        same(tutti.all_reduce(Produced(b"", 2, 64, [0], versioned=versioned)), np.empty(0))
        pointer = Produced(b"1234", 3, 32, [1], versioned=versioned)
        raises(tutti.InvalidArgument, lambda: tutti.all_reduce(pointer), "kind 3")
    frozen = Produced(b"\1\2", 1, 8, [2], versioned=True, read_only=True)
    same(tutti.all_reduce(frozen), np.array([1, 2], "u1") * group.size)
    raises(tutti.InvalidArgument, lambda: tutti.all_reduce(frozen, out=frozen), "read-only")
    later = Produced(b"\1\2", 1, 8, [2], versioned=True, major=2)
    raises(tutti.Unsupported, lambda: tutti.all_reduce(later), "version")


def check_a_gpu_that_is_not_there(group):
    """Without a driver there is one line on it, and nothing ends."""
    try:
        ctypes.CDLL("libcuda.so.1")
        return  # then it may be there
    except OSError:
        pass
    x = Produced(b"\1", 1, 8, [1], device=2, versioned=True)
    raises(tutti.InvalidArgument, lambda: tutti.all_reduce(x), "out=")
    missing = "no CUDA"  # driver, or no CUDA in this build
    raises(tutti.Unsupported, lambda: tutti.all_reduce(x, out=x), "all_reduce", missing)
    raises(tutti.Unsupported, lambda: tutti.all_reduce_async(x, out=x).wait(), missing)
    raises(tutti.Unsupported, lambda: tutti.send(x, 0), missing)
    raises(tutti.Unsupported, lambda: group.empty(3, device="cuda"), missing)
    raises(tutti.InvalidArgument, lambda: group.empty(3, device="tpu"), "'tpu'")
    raises(tutti.InvalidArgument, lambda: tutti.all_reduce(np.ones(1), stream=7), "stream=")
    raises(tutti.InvalidArgument, lambda: tutti.all_reduce(x, out=x, stream="7"), "stream", "'7'")
    raises(tutti.InvalidArgument, lambda: tutti.all_reduce(x, out=x, stream=-7), "stream", "-7")
    mixed = np.ones(1, "u1")
    raises(tutti.InvalidArgument, lambda: tutti.all_reduce(x, out=mixed), "GPU", "CPU")
    raises(tutti.InvalidArgument, lambda: tutti.broadcast(x, group.rank, out=mixed), "GPU", "CPU")
    raises(tutti.InvalidArgument, lambda: group.forget(mixed), "ndarray")
    gc.collect()
    assert x.taken == x.released > 0 and group.health is None
    same(tutti.all_reduce(np.ones(1), stream=None), np.full(1, float(group.size)))


def check_arrays_of_jax_are_never_written(group):
    # Its protocol cannot say so in the old version; its arrays are immutable all the same.
    jax = type("ArrayImpl", (Boxed,), {"__module__": "jaxlib.xla_extension"})(np.ones(2))
    same(tutti.all_reduce(jax), np.full(2, float(group.size)))
    raises(tutti.InvalidArgument, lambda: tutti.all_reduce(jax, out=jax), "read-only", "ArrayImpl")


def check_arrays_that_are_not_contiguous(group):
    n = group.size
    whole = np.arange(24, dtype="f8").reshape(4, 6)
    same(tutti.all_reduce(whole[::2, 1::2]), np.ascontiguousarray(whole[::2, 1::2]) * n)
    out = np.zeros((4, 6))
    tutti.all_reduce(whole[::2, 1::2], out=out[1::2, ::2])
    expected = np.zeros((4, 6))
    expected[1::2, ::2] = whole[::2, 1::2] * n
    same(out, expected)
    x = whole.copy()
    view = x[:, ::-1]
    assert tutti.all_reduce(view, out=view) is view
    same(x, whole * n)
    fortran = np.asfortranarray(whole)
    assert tutti.all_reduce(fortran, out=fortran) is fortran
    same(fortran, whole * n)
    # One rank's columns are another's rows: order in memory is local.
    mine = np.asfortranarray(whole) if group.rank % 2 else whole.copy()
    tutti.all_reduce(mine, out=mine)
    same(np.ascontiguousarray(mine), whole * n)
    if n > 1:  # started: filled when it is waited for
        column = np.zeros((3, 2))[:, 0]
        work = tutti.broadcast_async(np.arange(3.0), 0, out=column)
        assert work.wait() is column
        same(np.ascontiguousarray(column), np.arange(3.0))


def check_the_other_byte_order(group):
    x = np.arange(5, dtype=">i4")
    same(tutti.all_reduce(x), np.arange(5, dtype="i4") * group.size)
    tutti.all_reduce(x, out=x)
    assert x.dtype == np.dtype(">i4") and x.tolist() == [group.size * i for i in range(5)]


def check_nothing_at_all(group):
    for shape in [(0,), (0, 4)]:
        empty = np.empty(shape, "f4")
        same(tutti.all_reduce(empty), empty)
        same(tutti.broadcast(empty), empty)
        same(tutti.all_gather(empty), empty)
        same(tutti.reduce_scatter(empty), empty)
        same(tutti.all_to_all(empty), empty)
    assert tutti.empty((0, 3)).shape == (0, 3)


def check_what_cannot_travel_is_refused(group):
    x = np.ones(4)
    for bad in (np.array(["2026-11-15"], "M8[s]"), np.array([object()]), np.array(["words"]),
                np.zeros(2, "i4,f4"), np.zeros(2, np.longdouble)):
        error = raises(tutti.InvalidArgument, lambda: tutti.all_reduce(bad), "dtype")
        assert isinstance(error, ValueError) and error.code == "invalid_argument"
    raises(tutti.InvalidArgument, lambda: tutti.all_reduce(np.ma.masked_array(x)), "mask")
    raises(tutti.InvalidArgument, lambda: tutti.all_reduce(x, "mean"), "'mean'", "premul_sum")
    raises(tutti.InvalidArgument, lambda: tutti.all_reduce(x, "bxor"), "bxor")
    raises(tutti.InvalidArgument, lambda: tutti.all_reduce(x + 1j, "prod"), "complex")
    raises(tutti.InvalidArgument, lambda: tutti.all_reduce(x, out=np.ones(4, "f4")), "dtype")
    raises(tutti.InvalidArgument, lambda: tutti.all_reduce(x, out=np.ones(5)), "5 elements")
    raises(tutti.InvalidArgument, lambda: tutti.all_reduce(x, out=[0, 0, 0, 0]), "list")
    raises(tutti.InvalidArgument, lambda: tutti.all_reduce(x, algorithm="magic"), "'magic'")
    raises(tutti.InvalidArgument, lambda: tutti.broadcast(x, group.size), "root")
    raises(tutti.InvalidArgument, lambda: tutti.reduce(x, root=-1), "-1")
    raises(tutti.InvalidArgument, lambda: tutti.all_gather(x, counts=[4]*(group.size + 1)), "count")
    short = [1] * group.size
    raises(tutti.InvalidArgument,
           lambda: tutti.reduce_scatter(np.ones(group.size + 1), counts=short), "counts")
    raises(tutti.InvalidArgument, lambda: tutti.scatter(np.float64(1)), "first axis")
    if group.size > 1:
        parts = [np.ones(rank) for rank in range(group.size)]
        raises(tutti.InvalidArgument, lambda: tutti.scatter(parts, group.rank), "counts")
        raises(tutti.InvalidArgument, lambda: tutti.gather(x, group.rank, out=parts), "counts")
    raises(tutti.InvalidArgument, lambda: tutti.send(x, group.size), "not a rank")
    raises(tutti.InvalidArgument, lambda: tutti.init(), "finalize")
    raises(tutti.InvalidArgument, lambda: tutti.predict("all_reduction", 1), "all_reduce")
    frozen = np.ones(4)
    frozen.flags.writeable = False
    same(tutti.all_reduce(frozen), np.full(4, float(group.size)))
    raises(tutti.InvalidArgument, lambda: tutti.all_reduce(x, out=frozen), "read-only")
    raises(tutti.InvalidArgument, lambda: tutti.all_reduce(x, out=b"12345678" * 4), "read-only")
    raises(TypeError, lambda: tutti.all_reduce(x, speed=11), "speed")
    assert group.health is None  # a refused call ends nothing
    same(tutti.all_reduce(x), np.full(4, float(group.size)))


def check_works_go_on_by_themselves(group):
    works = [tutti.all_reduce_async(np.full(1000, i)) for i in range(20)]
    for i, work in reversed(list(enumerate(works))):
        same(work.wait(), np.full(1000, i * group.size))
        assert work.done() and work.wait() is work.wait()
    assert isinstance(tutti.all_reduce_async(2.0).wait(), np.float64)
    assert tutti.barrier_async().wait() is None
    out = np.zeros(3)
    work = tutti.all_gather_async(np.ones(1), out=np.empty(group.size))
    same(work.wait(timeout=60), np.ones(group.size))
    tutti.reduce_async(np.ones(3), root=0, out=out if group.rank == 0 else None).wait()
    assert (out == (group.size if group.rank == 0 else 0)).all()
    tutti.scatter_async(np.arange(group.size)).wait()


def check_a_work_that_nobody_keeps_keeps_its_arrays(group):
    for _ in range(20):
        x = np.ones(100_000)
        tutti.all_reduce_async(x, out=x)
        del x
        junk = np.full(100_000, 3.0)  # would land in the freed memory
    tutti.barrier()
    assert (junk == 3.0).all()


def check_arrays_are_let_go(group):
    x, out = np.ones(8), np.empty(8)
    seen = [weakref.ref(x), weakref.ref(out)]
    before = sys.getrefcount(x), sys.getrefcount(out)
    for _ in range(10):
        tutti.all_reduce(x, out=out)
        tutti.all_reduce(x, out=out, name="slow way")
        tutti.all_reduce_async(x, out=out).wait()
        tutti.all_gather([x[:1]][0])
        raises(tutti.InvalidArgument, lambda: tutti.all_reduce(x, "bxor", out=out))
    assert (sys.getrefcount(x), sys.getrefcount(out)) == before
    tutti.all_reduce_async(x, out=out)  # nobody waits
    del x, out
    tutti.barrier()
    tutti.barrier_async().wait()  # what is over is let go when the next is started
    assert [ref() for ref in seen] == [None, None]


def check_works_can_be_awaited(group):
    async def both():
        one = tutti.all_reduce_async(np.ones(2))
        two = tutti.all_gather_async(group.rank)
        return await asyncio.gather(wrap(one), wrap(two))

    async def wrap(work):
        return await work

    one, two = asyncio.run(both())
    same(one, np.full(2, float(group.size)))
    same(two, np.arange(group.size))


def check_symmetric_memory(group):
    x = group.empty((4, 3), "f4")
    assert x.shape == (4, 3) and x.dtype == np.float32 and (x == 0).all() and x.flags.c_contiguous
    x[:] = group.rank + 1
    total = group.size * (group.size + 1) // 2
    assert tutti.all_reduce(x, out=x) is x
    assert (x == total).all()
    part = group.empty(5, "i8")[1:4]  # a view keeps it alive
    part[:] = group.rank
    gc.collect()
    same(tutti.all_gather(part), np.repeat(np.arange(group.size), 3))
    large = tutti.empty(1 << 18)
    large[:] = 1
    same(tutti.all_reduce(large, out=large), np.full(1 << 18, float(group.size)))
    plain = np.ones(1 << 16)
    mixed = plain if group.rank == 0 else large[:1 << 16]  # memory kinds may differ by rank
    mixed[:] = 1
    tutti.all_reduce(mixed, out=mixed)
    assert (mixed == group.size).all()


def check_pools(group):
    pool = group.pool(1 << 20)
    before = pool.empty(1000 * (group.rank + 1), "i8")  # the next lies elsewhere on each rank
    x = pool.empty((100, 301), "f4")
    assert x.shape == (100, 301) and x.dtype == np.float32 and x.flags.writeable
    x[:] = group.rank + 1
    part = x[1:]  # a view keeps the piece
    free = pool.bytes_free
    del x
    gc.collect()
    assert pool.bytes_free == free and pool.bytes == 1 << 20
    assert tutti.all_reduce(part, out=part) is part
    assert (part == group.size * (group.size + 1) // 2).all()
    error = raises(tutti.OutOfMemory, lambda: pool.empty(1 << 20), "free")
    assert isinstance(error, MemoryError) and group.health is None
    assert pool.peak_bytes >= before.nbytes + 100 * 301 * 4
    group.barrier()
    del part, before
    gc.collect()
    assert pool.largest_free == pool.bytes_free == pool.bytes
    assert pool.empty((0, 4)).shape == (0, 4)
    raises(tutti.InvalidArgument, lambda: group.pool(5, device="tpu"), "'tpu'")


def check_large_arrays(group):
    x = np.arange(300_000, dtype="f8")
    same(tutti.all_reduce(x), np.arange(300_000, dtype="f8") * group.size)
    same(tutti.all_to_all(np.repeat(np.arange(group.size), 50_000)),
         np.full(50_000 * group.size, group.rank))


def check_errors_can_be_pickled(group):
    error = raises(tutti.InvalidArgument, lambda: group.all_reduce(np.ones(1), "bxor"))
    again = pickle.loads(pickle.dumps(error))
    assert type(again) is tutti.InvalidArgument and str(again) == str(error)
