"""Arrays on a CUDA device: other libraries' through DLPack or __cuda_array_interface__, and our own.

A call on them is ordered by streams. It begins behind what is in its stream (`stream=`; without it
the legacy default stream), and behind what each array's library says that its contents wait for.
What is put into that stream afterwards finds the result.
"""

import math

import numpy as np

from . import _tutti
from .errors import InvalidArgument

_GPU, _MANAGED = 2, 13  # DLPack's kinds of devices


def handle_of(stream):
    """The number that the driver knows a stream by; 0 is the legacy default stream."""
    given = stream
    if stream is None:
        return 0
    if hasattr(stream, "__cuda_stream__"):
        told = stream.__cuda_stream__
        stream = (told() if callable(told) else told)[1]
    else:
        for name in ("cuda_stream", "ptr"):  # torch's, CuPy's
            if hasattr(stream, name):
                stream = getattr(stream, name)
                break
    if isinstance(stream, bool) or not isinstance(stream, (int, np.integer)) or stream < 0:
        raise InvalidArgument("stream is a CUDA stream's handle, or an object with __cuda_stream__ "
                              f"or cuda_stream, not {given!r}")
    return 0 if stream == 1 else int(stream)  # both protocols say 1 for the legacy default stream


class DeviceArray(_tutti.DeviceMemory):
    """Memory on a GPU, with a shape and a type. `group.empty(…, device="cuda")` makes them in
    symmetric memory; `torch.from_dlpack(x)` or `cupy.asarray(x)` computes with them. Handing one on
    orders nothing: whoever uses it does so in a stream that waits for what was started on it."""

    def __init__(self, address, shape, kind, owner, itemsize):
        super().__init__(address, math.prod(shape) * itemsize, owner)
        self.shape = tuple(shape)
        self.kind = kind

    @property
    def dtype(self):
        """numpy's type; None where numpy has none."""
        return self.kind.dtype

    @property
    def size(self):
        return math.prod(self.shape)

    @property
    def ndim(self):
        return len(self.shape)

    def __len__(self):
        if not self.shape:
            raise TypeError("an array without dimensions has no length")
        return self.shape[0]

    def reshape(self, *shape):
        """The same memory in another shape; one length may be -1."""
        shape = shape[0] if len(shape) == 1 and not isinstance(shape[0], int) else shape
        known = math.prod(length for length in shape if length != -1)
        if -1 in shape and known:
            shape = [self.size // known if length == -1 else length for length in shape]
        if math.prod(shape) != self.size or min(shape, default=0) < 0:
            raise InvalidArgument(f"an array of shape {self.shape} cannot become {tuple(shape)}")
        return DeviceArray(self.address, shape, self.kind, self, self.nbytes // max(1, self.size))

    @property
    def __cuda_array_interface__(self):
        if self.dtype is None or self.dtype.kind not in "biufc":
            raise AttributeError("__cuda_array_interface__ has no word for this type; use DLPack")
        return {"shape": self.shape, "typestr": self.dtype.str, "data": (self.address, False),
                "strides": None, "stream": None, "version": 3}

    def __dlpack_device__(self):
        return (_GPU, _tutti.gpu_of(self.address) if self.address else 0)

    def __dlpack__(self, *, stream=None, max_version=None, dl_device=None, copy=None):
        device = self.__dlpack_device__()
        if copy or (dl_device is not None and tuple(dl_device) != device):
            raise BufferError("tutti hands on its own memory, and makes no copies of it")
        versioned = max_version is not None and tuple(max_version) >= (1, 0)
        return _tutti.to_dlpack(self, self.address, device[1], self.kind.code, self.kind.parts,
                                self.shape, versioned)

    def __array__(self, *_, **__):
        raise TypeError("numpy cannot read memory of a GPU: copy it by torch, CuPy or the like")

    def __repr__(self):
        return f"<tutti.DeviceArray, shape {self.shape}, {self.dtype}, at {self.address:#x}>"


def is_on_gpu(x):
    """Whether it is some library's array on a CUDA device."""
    if isinstance(x, DeviceArray):
        return True
    if hasattr(x, "__dlpack_device__"):
        return x.__dlpack_device__()[0] in (_GPU, _MANAGED)
    return hasattr(x, "__cuda_array_interface__")


def view(x, stream, kind_of, kind_of_code):
    """(DeviceArray, whether it may be written) of such an array; what is put into `stream` next
    finds its contents. `kind_of` and `kind_of_code` tell the Kind of numpy's types, and of those that
    it lacks."""
    if isinstance(x, DeviceArray):
        return x, True
    if hasattr(x, "__dlpack__"):
        address, nbytes, shape, name, code, writable, owner = \
            _tutti.from_dlpack_on_gpu(x, stream or 1)
        kind = kind_of(np.dtype(name)) if code < 0 else kind_of_code(code)
        return DeviceArray(address, shape, kind, owner, np.dtype(name).itemsize), writable
    return _from_interface(x, stream, kind_of)


def _from_interface(x, stream, kind_of):
    told = x.__cuda_array_interface__
    shape, dtype = tuple(told["shape"]), np.dtype(told["typestr"])
    if not dtype.isnative or told.get("mask") is not None:
        raise InvalidArgument("an array on a GPU has a mask, or the other byte order: it cannot "
                              "travel")
    address, read_only = told["data"]
    array = DeviceArray(address or 0, shape, kind_of(dtype), x, dtype.itemsize)
    strides, step = told.get("strides"), dtype.itemsize
    if strides is not None and array.size:
        for length, stride in zip(reversed(shape), reversed(tuple(strides))):
            if length != 1 and stride != step:
                raise InvalidArgument("an array on a GPU is not contiguous in C order: copy it to "
                                      "one that is")
            step *= length
    theirs = told.get("stream")
    if theirs == 0:
        raise InvalidArgument("an array's __cuda_array_interface__ names stream 0, which it must "
                              "not: 1 is the legacy default stream, 2 the thread's")
    if theirs is not None and array.size:
        _tutti.order_streams(0 if theirs == 1 else theirs, stream, address)
    return array, not read_only


def copy(to, source, stream):
    """Puts a copy into the stream, unless both are the same memory; returns `to` as an array that
    keeps the source alive."""
    _tutti.copy_on_gpu(to.address, source.address, source.nbytes, stream)
    return DeviceArray(to.address, to.shape, to.kind, (to, source), to.nbytes // max(1, to.size))
