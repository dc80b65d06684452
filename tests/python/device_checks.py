"""Arrays on a GPU in every operation; streams; works; symmetric memory there. The driver is the emulated one,
or a real one."""
import asyncio
import ctypes
import gc
import time

import numpy as np
from device_arrays import (CoreStream, Gate, Memory, Shown, Spoken, Stream, TorchStream, contents_of,
                           copy, open_gpu, order)
from memory_checks import raises
from values import DTYPES, fold, ops_for, same, values

import tutti

COUNT = 257
_streams = []


def stream_of(group):
    """This process's own; the GPU is opened with it."""
    if not _streams:
        open_gpu()
        _streams.append(TorchStream())
    return _streams[0]


def inputs(group, shape=(COUNT,), dtype="f4", op="sum"):
    return [values(rank, shape, dtype, op) for rank in range(group.size)]


def settle(group, fact=lambda: True):
    """Until tutti has let go of the arrays of operations that are over, so that `fact` is so. It looks
    at them whenever something is started."""
    deadline = time.monotonic() + 20
    while True:
        alone = [tutti.Send(np.ones(1), group.rank, 99), tutti.Recv(np.ones(1), group.rank, 99)]
        tutti.exchange_async(alone).wait()
        gc.collect()
        if fact():
            return
        assert time.monotonic() < deadline, "arrays are still kept"
        time.sleep(0.001)


def check_every_collective(group):
    stream = stream_of(group)
    n, me = group.size, group.rank
    for library in (Spoken, Shown):
        given = inputs(group, (n * 3, 2))
        x = library(given[me], stream)
        out = library(np.zeros_like(given[me]), stream)
        total = fold(given, "sum")
        options = {"out": out, "stream": stream}

        assert tutti.all_reduce(x, **options) is out
        same(out.read(), total)
        same(x.read(), given[me])  # only out is written
        assert (tutti.reduce(x, root=n - 1, **options) is out) == (me == n - 1)
        tutti.scan(x, **options)
        same(out.read(), fold(given[:me + 1], "sum"))
        out.write(given[me])
        tutti.exclusive_scan(x, **options)
        same(out.read(), fold(given[:me], "sum") if me else given[me])
        tutti.broadcast(x, n - 1, **options)
        same(out.read(), given[n - 1])
        tutti.all_to_all(x, **options)
        same(out.read(), np.concatenate([part[me * 3:me * 3 + 3] for part in given]))

        part = library(np.zeros((3, 2), "f4"), stream)
        tutti.reduce_scatter(x, out=part, stream=stream)
        same(part.read(), total[me * 3:me * 3 + 3])
        tutti.scatter(x, n - 1, out=part, stream=stream)
        same(part.read(), given[n - 1][me * 3:me * 3 + 3])
        tutti.all_gather(part, **options)
        same(out.read(), given[n - 1])
        out.write(given[me])
        tutti.gather(part, 0, out=out if me == 0 else None, stream=stream)
        same(out.read(), given[n - 1] if me == 0 else given[me])


def check_parts_of_different_length(group):
    stream = stream_of(group)
    n, me = group.size, group.rank
    counts = [rank + 1 for rank in range(n)]
    rows = sum(counts)
    given = inputs(group, (rows, 2), "i8")
    start = sum(counts[:me])
    x, whole = Spoken(given[me], stream), Shown(np.zeros((rows, 2), "i8"), stream)
    part = Spoken(np.zeros((me + 1, 2), "i8"), stream)
    options = {"counts": counts, "stream": stream}
    tutti.reduce_scatter(x, out=part, **options)
    same(part.read(), fold(given, "sum")[start:start + me + 1])
    tutti.scatter(x, 0, out=part, **options)
    same(part.read(), given[0][start:start + me + 1])
    tutti.all_gather(part, out=whole, **options)
    same(whole.read(), given[0])
    whole.write(given[me])
    tutti.gather(part, 0, out=whole if me == 0 else None, **options)
    same(whole.read(), given[0] if me == 0 else given[me])
    # Rank r gets r + 1 rows of every rank.
    mine = Spoken(np.zeros((n * (me + 1), 2), "i8"), stream)
    tutti.all_to_all(x, out=mine, counts=counts, out_counts=[me + 1] * n, stream=stream)
    same(mine.read(), np.concatenate([each[start:start + me + 1] for each in given]))
    # One array per rank.
    several = [Shown(np.zeros((count, 2), "i8"), stream) for count in counts]
    tutti.all_gather(part, out=several, stream=stream)
    same(np.concatenate([each.read() for each in several]), given[0])


def check_every_type(group):
    stream = stream_of(group)
    for dtype in DTYPES:
        for op in ops_for(dtype):
            given = inputs(group, (19,), dtype, op)
            x = Spoken(given[group.rank], stream, versioned=op == "sum")
            tutti.all_reduce(x, op, out=x, scalar=2.0 if op == "premul_sum" else 1.0, stream=stream)
            same(x.read(), fold(given, op, 2.0))
    # bf16 1.0 is 3f80: numpy has no such type, DLPack does.
    x = Spoken(np.array([0x3f80, 0x4000], "u2"), stream, element=(4, 16))
    tutti.all_reduce(x, "max", out=x, stream=stream)
    same(x.read(), np.array([0x3f80, 0x4000], "u2"))


def check_messages(group):
    stream = stream_of(group)
    n, me = group.size, group.rank
    given = inputs(group)
    x, out = Spoken(given[me], stream), Shown(np.zeros(COUNT, "f4"), stream)
    work = tutti.isend(x, (me + 1) % n, 5, stream=stream)
    received = tutti.recv(out, (me - 1) % n, 5, stream=stream)
    assert received == ((me - 1) % n, 5, COUNT * 4)
    same(out.read(Stream()), given[(me - 1) % n])  # recv blocks: in whatever stream
    work.wait()
    work = tutti.irecv(x, tag=6, stream=stream)
    tutti.send(out, (me - 1) % n, 6, stream=stream)
    assert work.wait().bytes == COUNT * 4
    same(x.read(), given[me])
    there, back = tutti.Send(x, (me + 1) % n), tutti.Recv(out, (me - 1) % n)
    assert tutti.exchange([back, there], stream=stream).source == (me - 1) % n
    work = tutti.exchange_async([back, there], stream=stream)
    other = Stream()
    work.wait_on(other.handle)
    same(out.read(other), given[(me - 1) % n])
    assert work.wait().source == (me - 1) % n


def check_a_call_is_behind_its_stream(group):
    """What the stream has yet to do comes first; what waits for the work comes after; nobody blocks."""
    stream, other = stream_of(group), CoreStream()
    given = inputs(group)
    x = Spoken(given[group.rank], stream)
    tutti.all_reduce(x, out=x, stream=stream)  # from now on known to all
    x.write(np.zeros(COUNT, "f4"))
    staged = Spoken(given[group.rank], Stream())
    staged.stream.synchronize()
    settle(group, lambda: x.released == x.taken)
    gate = Gate(stream)
    copy(x.address, staged.address, x.nbytes, stream.handle)
    work = tutti.all_reduce_async(x, out=x, stream=stream)
    assert x.streams[-1] == stream.handle
    work.wait_on(other)
    raises(tutti.TimedOut, lambda: work.wait(timeout=0.02))
    assert not work.done()
    gate.open()
    same(x.read(other), fold(given, "sum"))
    assert work.wait() is x and work.done()


def check_a_blocking_call_is_in_its_stream_only(group):
    """It returns while the GPU has not come to it, and keeps the arrays until then."""
    stream = stream_of(group)
    given = inputs(group)
    x, out = Spoken(given[group.rank], stream), Spoken(np.zeros(COUNT, "f4"), stream)
    tutti.all_reduce(x, out=out, stream=stream)
    stream.synchronize()
    settle(group, lambda: x.released == x.taken)
    gate = Gate(stream)
    tutti.all_reduce(x, out=out, stream=stream)
    assert (x.taken, x.released, out.taken, out.released) == (2, 1, 2, 1)
    gate.open()
    same(out.read(), fold(given, "sum"))
    settle(group, lambda: (x.released, out.released) == (2, 2))


def check_an_array_names_its_stream(group):
    """The call waits for the stream of __cuda_array_interface__, and DLPack's producer makes it wait."""
    def reduce_behind_a_gate(x):
        tutti.all_reduce(x, out=x, stream=stream)
        order(stream.handle, x.stream.handle)
        x.stream.synchronize()
        settle(group, lambda: getattr(x, "released", 2) == 2)
        gate = Gate(x.stream)
        x.staging.array[:x.nbytes] = given[group.rank].view("u1")
        copy(x.address, x.staging.address, x.nbytes, x.stream.handle)
        work = tutti.all_reduce_async(x, out=x, stream=stream)
        raises(tutti.TimedOut, lambda: work.wait(timeout=0.02))
        gate.open()
        work.wait()
        same(x.read(stream), fold(given, "sum"))

    stream = stream_of(group)
    given = inputs(group)
    for library in (Shown, Spoken):
        reduce_behind_a_gate(library(np.zeros(COUNT, "f4"), Stream()))


def check_the_default_stream(group):
    stream_of(group)
    given = inputs(group)
    x = Spoken(given[group.rank], Stream())
    tutti.all_reduce(x, out=x)
    assert set(x.streams) == {1}  # the legacy default stream, as DLPack says it
    tutti.all_reduce(x, "max", out=x, stream=1)
    assert set(x.streams) == {1}
    default = Stream()
    default.handle = 0
    same(x.read(default), fold(given, "sum"))
    tutti.all_reduce(x, "max", out=x, stream=2)
    assert x.streams[-1] == 2  # the thread's own
    quiet = Shown(given[group.rank], Stream(), {"stream": None})
    quiet.stream.synchronize()
    tutti.all_reduce(quiet, out=quiet)
    same(quiet.read(default), fold(given, "sum"))


def check_works_on_a_gpu_can_be_awaited(group):
    stream = stream_of(group)
    x = Spoken(inputs(group)[group.rank], stream)

    async def one():
        return await tutti.all_reduce_async(x, out=x, stream=stream)

    assert asyncio.run(one()) is x
    same(x.read(), fold(inputs(group), "sum"))


def check_arrays_that_nobody_keeps(group):
    """Works keep their arrays; once they are over, nothing keeps them."""
    stream = stream_of(group)
    gc.collect()
    before = Memory.alive
    for library in (Spoken, Shown):
        for _ in range(3):
            x = library(np.ones(COUNT, "f4"), stream)
            tutti.all_reduce_async(x, out=x, stream=stream)
            y = library(np.ones(COUNT, "f4"), stream)
            tutti.broadcast(x, 0, out=y, stream=stream)
            del x, y
    settle(group, lambda: Memory.alive == before)


def check_symmetric_memory_on_a_gpu(group):
    stream = stream_of(group)
    n, me = group.size, group.rank
    x = group.empty((4, 3), "f4", device="cuda")
    assert isinstance(x, tutti.DeviceArray) and x.shape == (4, 3) and x.dtype == np.float32
    assert (x.size, x.ndim, x.nbytes, len(x)) == (12, 2, 48, 4)
    same(contents_of(x), np.zeros((4, 3), "f4"))
    mine = Spoken(np.full((4, 3), me + 1, "f4"), stream)
    tutti.scan(x, out=x, stream=stream)
    copy(x.address, mine.address, x.nbytes, stream.handle)
    assert tutti.all_reduce(x, out=x, stream=stream) is x
    stream.synchronize()
    same(contents_of(x), np.full((4, 3), n * (n + 1) // 2, "f4"))
    flat = x.reshape(-1)
    assert flat.shape == (12,) and flat.address == x.address
    raises(tutti.InvalidArgument, lambda: x.reshape(5, 2), "(4, 3)", "(5, 2)")
    tutti.broadcast(root=n - 1, out=flat, stream=stream).reshape(2, 6)
    address = x.address
    del x
    gc.collect()
    stream.synchronize()
    assert flat.address == address
    same(contents_of(flat), np.full(12, n * (n + 1) // 2, "f4"))  # a view keeps it alive
    assert tutti.empty((0, 3), "i4", device="cuda").shape == (0, 3)
    raises(TypeError, lambda: np.asarray(flat), "GPU")


def check_pools_on_a_gpu(group):
    stream = stream_of(group)
    pool = group.pool(1 << 20, device="cuda")
    before = pool.empty(100 * (group.rank + 1), "u1")
    x = pool.empty((4, 3), "f4")
    assert isinstance(x, tutti.DeviceArray) and x.shape == (4, 3) and x.address % 256 == 0
    mine = Spoken(np.full((4, 3), group.rank + 1, "f4"), stream)
    copy(x.address, mine.address, x.nbytes, stream.handle)
    tutti.all_reduce(x, out=x, stream=stream)
    stream.synchronize()
    same(contents_of(x), np.full((4, 3), group.size * (group.size + 1) // 2, "f4"))
    raises(tutti.OutOfMemory, lambda: pool.empty(1 << 20), "free")
    group.barrier()
    del x, before


def check_symmetric_memory_speaks_dlpack(group):
    import dlpack_producer
    x = tutti.empty((2, 3), "c8", device="cuda")
    assert x.__dlpack_device__() == (2, 0)
    pointer = ctypes.pythonapi.PyCapsule_GetPointer
    pointer.restype, pointer.argtypes = ctypes.c_void_p, [ctypes.py_object, ctypes.c_char_p]
    for options, name, kind in [({}, b"dltensor", dlpack_producer.Managed),
                                ({"max_version": (1, 1)}, b"dltensor_versioned",
                                 dlpack_producer.ManagedVersioned)]:
        capsule = x.__dlpack__(stream=1, **options)
        managed = kind.from_address(pointer(capsule, name))
        tensor = managed.tensor
        assert (tensor.data, tensor.dimensions) == (x.address, 2)
        assert (tensor.device.kind, tensor.device.id) == (2, 0)
        assert (tensor.element.kind, tensor.element.bits, tensor.element.lanes) == (5, 64, 1)
        assert (tensor.shape[0], tensor.shape[1], tensor.strides[0], tensor.strides[1]) == (2, 3, 3, 1)
        del capsule  # nobody took it
    # Taken by tutti itself, as by any consumer: the array lives as long as what was taken.
    class Handed:
        def __init__(self, array):
            self.array = array

        def __dlpack__(self, **options):
            return self.array.__dlpack__(**options)

        def __dlpack_device__(self):
            return self.array.__dlpack_device__()

    handed = Handed(x)
    assert tutti.all_reduce(handed, out=handed) is handed
    raises(BufferError, lambda: x.__dlpack__(copy=True), "copies")
    raises(BufferError, lambda: x.__dlpack__(dl_device=(1, 0)), "copies")


def check_mistakes_on_a_gpu(group):
    stream = stream_of(group)
    x = Spoken(np.ones((4, 4), "f4"), stream)
    refused = lambda call, *words: raises(tutti.InvalidArgument, call, *words)  # noqa: E731
    refused(lambda: tutti.all_reduce(x), "out=")
    refused(lambda: tutti.all_gather(x), "out=")
    refused(lambda: tutti.all_reduce(x, out=np.ones((4, 4), "f4")), "GPU", "CPU")
    refused(lambda: tutti.all_reduce(x, out=Spoken(np.ones(16), stream)), "dtype")
    refused(lambda: tutti.all_reduce(x, out=Spoken(np.ones(3, "f4"), stream)), "3 elements")
    refused(lambda: tutti.all_reduce(x, out=x, stream=stream.handle + 0.5), "stream")
    refused(lambda: tutti.all_reduce(x, out=x, stream=True), "stream")
    frozen = Spoken(np.ones(3, "f4"), stream, read_only=True)
    refused(lambda: tutti.all_reduce(frozen, out=frozen), "read-only", "Spoken")
    turned = Spoken(np.ones((4, 4), "f4"), stream, strides=(1, 4))
    refused(lambda: tutti.all_reduce(turned, out=x), "contiguous")
    refused(lambda: tutti.all_reduce(x, out=Shown(np.ones((4, 4), "f4"), stream, {"strides": (4, 16)})),
            "contiguous")
    refused(lambda: tutti.all_reduce(Shown(np.ones(4), stream, {"mask": x}), out=x), "mask")
    refused(lambda: tutti.all_reduce(Shown(np.ones(4), stream, {"stream": 0}), out=x), "stream 0")
    refused(lambda: tutti.all_reduce(Shown(np.ones(4, "V4"), stream), out=x), "dtype")
    error = refused(lambda: tutti.all_reduce(np.ones(1), stream=stream), "stream=")
    assert "\n" not in str(error)
    assert group.health is None
    one = Spoken(np.ones((4, 1), "f4"), stream, strides=(1, 77))  # a length of 1 has no stride
    tutti.all_reduce(one, out=one, stream=stream)
    same(one.read(), np.full((4, 1), group.size, "f4"))
    managed = Spoken(np.ones(4, "f4"), stream, device=13)  # moves by itself; as good as any
    tutti.all_reduce(managed, out=managed, stream=stream)
    same(managed.read(), np.full(4, group.size, "f4"))


def check_memory_is_forgotten(group):
    stream = stream_of(group)
    for _ in range(4):
        x = Spoken(np.ones(COUNT, "f4"), stream)
        tutti.all_reduce(x, out=x, stream=stream)
        same(x.read(), np.full(COUNT, group.size, "f4"))
        tutti.barrier()
        group.forget(x)
        tutti.forget(x.address)
        del x
    group.forget(0)  # nobody has seen it
    raises(tutti.InvalidArgument, lambda: group.forget(np.ones(1)), "GPU")
