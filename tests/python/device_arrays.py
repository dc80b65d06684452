"""Arrays on a GPU of two imaginary libraries, one that speaks DLPack and one that has nothing but
__cuda_array_interface__. They call the CUDA driver: the emulated one, or a real one."""
import ctypes

import dlpack_producer
import numpy as np

_cuda = ctypes.CDLL("libcuda.so.1")
Address = ctypes.c_uint64
Handle = ctypes.c_void_p


def call(name, *arguments):
    result = getattr(_cuda, name)(*arguments)
    assert result == 0, f"{name} failed with {result}"


def open_gpu():
    """Makes the first GPU this thread's own."""
    context = Handle()
    call("cuInit", 0)
    call("cuDevicePrimaryCtxRetain", ctypes.byref(context), 0)
    call("cuCtxPushCurrent_v2", context)


def copy(to, source, nbytes, stream):
    call("cuMemcpyAsync", Address(to), Address(source), ctypes.c_size_t(nbytes), Handle(stream))


class Stream:
    """One that waits for no other by itself. Looks like torch's, or like what `__cuda_stream__` is for."""

    def __init__(self):
        handle = Handle()
        call("cuStreamCreateWithPriority", ctypes.byref(handle), 1, 0)
        self.handle = handle.value

    def synchronize(self):
        call("cuStreamSynchronize", Handle(self.handle))

    def wait_for(self, other):
        order(other.handle, self.handle)


class TorchStream(Stream):
    @property
    def cuda_stream(self):
        return self.handle


class CoreStream(Stream):
    def __cuda_stream__(self):
        return (0, self.handle)


def order(first, then):
    """What is put into stream `then` next waits for what is in `first`."""
    event = Handle()
    call("cuEventCreate", ctypes.byref(event), 2)
    call("cuEventRecord", event, Handle(first))
    call("cuStreamWaitEvent", Handle(then), event, 0)
    call("cuEventDestroy_v2", event)


class Pinned:
    """Host memory that the GPU reaches, as a numpy array."""

    def __init__(self, nbytes):
        pointer = Handle()
        call("cuMemHostAlloc", ctypes.byref(pointer), ctypes.c_size_t(max(8, nbytes)), 0)
        self.address = pointer.value
        self.array = np.ctypeslib.as_array((ctypes.c_uint8 * max(8, nbytes)).from_address(self.address))
        self.array[:] = 0

    def __del__(self):
        _cuda.cuMemFreeHost(Handle(self.address))


class Gate:
    """Holds a stream back until it is opened. Meanwhile nothing may be freed: that waits for all streams."""

    words = []  # never freed, for that reason

    def __init__(self, stream):
        self.word = Pinned(8)
        Gate.words.append(self.word)
        wait = (ctypes.c_uint64 * 6)(4, self.word.address, 1, 0, 0, 0)  # until it is at least 1
        call("cuStreamBatchMemOp_v2", Handle(stream.handle), 1, wait, 0)

    def open(self):
        self.word.array.view("u8")[0] = 1


class Memory:
    """Memory of the GPU. Contents come and go in `stream`, the array's own."""

    alive = 0

    def __init__(self, values, stream):
        values = np.ascontiguousarray(values)
        self.shape, self.dtype, self.nbytes = values.shape, values.dtype, values.nbytes
        self.stream = stream
        address = Address()
        call("cuMemAlloc_v2", ctypes.byref(address), ctypes.c_size_t(max(1, self.nbytes)))
        self.address = address.value
        self.staging = Pinned(self.nbytes)
        self.write(values)
        Memory.alive += 1

    def write(self, values):
        self.stream.synchronize()  # the staging memory may be in use
        self.staging.array[:self.nbytes] = np.ascontiguousarray(values).reshape(-1).view("u1")
        copy(self.address, self.staging.address, self.nbytes, self.stream.handle)

    def read(self, stream=None):
        """What is there after what `stream` (without one: its own) has been given."""
        stream = stream or self.stream
        place = Pinned(self.nbytes)
        copy(place.address, self.address, self.nbytes, stream.handle)
        stream.synchronize()
        return place.array[:self.nbytes].view(self.dtype).reshape(self.shape).copy()

    def __del__(self):
        Memory.alive -= 1
        _cuda.cuMemFree_v2(Address(self.address))


class Spoken(Memory):
    """Speaks DLPack, as the protocol says: the consumer's stream waits for the array's own."""

    def __init__(self, values, stream, *, versioned=True, read_only=False, device=2, element=None,
                 strides=None):
        super().__init__(values, stream)
        self.versioned, self.device = versioned, device
        self.streams = []  # that were asked for
        self.taken = self.released = 0
        kind, bits = element or ({"i": 0, "u": 1, "f": 2, "c": 5, "b": 6}[self.dtype.kind],
                                 8 * self.dtype.itemsize)
        self._shape = (ctypes.c_int64 * max(1, len(self.shape)))(*self.shape)
        self._strides = strides and (ctypes.c_int64 * len(strides))(*strides)
        tensor = dlpack_producer.Tensor(
            self.address, dlpack_producer.Device(device, 0), len(self.shape),
            dlpack_producer.Element(kind, bits, 1), self._shape, self._strides, 0)
        self._tensor, self._read_only = tensor, read_only

    def __dlpack_device__(self):
        return (self.device, 0)

    def __dlpack__(self, *, stream, **options):
        if options and not self.versioned:
            raise TypeError(f"unknown arguments {list(options)}")
        assert stream not in (None, 0, -1)
        self.streams.append(stream)
        order(self.stream.handle, 0 if stream == 1 else stream)
        self.taken += 1
        # Each holds the array, until it is released.
        keep = [self]

        def release(_):
            keep.pop().released += 1

        release = dlpack_producer.Release(release)
        if self.versioned:
            managed = dlpack_producer.ManagedVersioned(1, 0, None, release, int(self._read_only),
                                                       self._tensor)
        else:
            managed = dlpack_producer.Managed(self._tensor, None, release)
        _managed.append((managed, release))
        name = b"dltensor_versioned" if self.versioned else b"dltensor"
        return dlpack_producer._new_capsule(ctypes.addressof(managed), name, None)


_managed = []  # what capsules point to; small, and kept


class Shown(Memory):
    """Has __cuda_array_interface__ of version 3 alone, which names its stream; `told` is what it says
    otherwise."""

    def __init__(self, values, stream, told=None):
        super().__init__(values, stream)
        self.told = told or {}

    @property
    def __cuda_array_interface__(self):
        return {"shape": self.shape, "typestr": self.dtype.str, "data": (self.address, False),
                "strides": None, "stream": self.stream.handle, "version": 3, **self.told}


def contents_of(array):
    """Of a DeviceArray of tutti's, found by its __cuda_array_interface__."""
    told = array.__cuda_array_interface__
    place = Pinned(array.nbytes)
    stream = Stream()
    copy(place.address, told["data"][0], array.nbytes, stream.handle)
    stream.synchronize()
    return place.array[:array.nbytes].view(told["typestr"]).reshape(told["shape"]).copy()
