"""Arrays in symmetric memory, and pools that they are cut from."""

import numpy as np

from . import arrays, device as devices
from .errors import InvalidArgument


def on_gpu(device):
    if device not in ("cpu", "cuda"):
        raise InvalidArgument(f"device is 'cpu' or 'cuda', not {device!r}")
    return device == "cuda"


def array_in(take, shape, dtype, gpu):
    """An array in the memory that `take(bytes)` gives."""
    dtype = np.dtype(dtype)
    kind = arrays.kind_of(dtype)
    shape = (shape,) if np.ndim(shape) == 0 else tuple(shape)
    count = int(np.prod(shape, dtype=np.int64))
    if gpu:
        address, owner = take(count * dtype.itemsize)
        return devices.DeviceArray(address, shape, kind, owner, dtype.itemsize)
    if count == 0:
        return np.empty(shape, dtype)
    return take(count * dtype.itemsize).view(dtype).reshape(shape)


class Pool:
    """Symmetric memory in pieces. All ranks of a group make it together (`group.pool`); from then on
    each takes arrays as it likes, without the others, and collectives on them copy nothing.

    An array's piece goes back when the array and its views are gone; until then it keeps the pool.
    """

    def __init__(self, pool, gpu):
        self._pool = pool
        self._gpu = gpu

    def empty(self, shape, dtype=float):
        """An array in a piece of the pool, with what was left there. OutOfMemory: no free stretch is
        large enough. A piece on a GPU may be taken again as soon as it is given back."""
        return array_in(self._pool.take, shape, dtype, self._gpu)

    @property
    def bytes(self):
        """How large it is."""
        return self._pool.bytes()

    @property
    def bytes_free(self):
        return self._pool.bytes_free()

    @property
    def largest_free(self):
        """The largest piece that can be taken now."""
        return self._pool.largest_free()

    @property
    def peak_bytes(self):
        """The most that was taken at one time."""
        return self._pool.peak_bytes()

    def __repr__(self):
        return f"<tutti.Pool, {self.bytes_free} of {self.bytes} bytes free>"
