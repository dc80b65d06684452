"""What users pass as memory that tutti can use: contiguous numpy arrays with a type of tutti's.

Accepted are numpy arrays, whatever has the buffer protocol (bytearray, memoryview, array.array),
whatever speaks DLPack (torch, JAX, …), and numbers and lists of numbers. Arrays that are not
contiguous, or not in the machine's byte order, are copied on the way. Arrays on a CUDA device,
through DLPack or __cuda_array_interface__, become a DeviceArray and must be contiguous already.
"""

import collections

import numpy as np

from . import _tutti, device
from .errors import InvalidArgument, Unsupported

# How elements travel: tutti's type, how many of it make one element (2 for complex), and numpy's
# type for new results; None where numpy has none.
Kind = collections.namedtuple("Kind", "code parts dtype")

_KINDS = {}
# Types that numpy lacks, and the package ml_dtypes adds. Found by name: tutti does not need the package.
_ADDED = {}
for _name, _code in _tutti.NUMPY_NAMES.items():
    if _name == "bool" or hasattr(np, _name):  # np.bool has meant other things
        _KINDS[np.dtype(_name)] = Kind(_code, 1, np.dtype(_name))
    else:
        _ADDED[_name] = _code
_KINDS[np.dtype("c8")] = Kind(_tutti.DTYPES["f32"], 2, np.dtype("c8"))
_KINDS[np.dtype("c16")] = Kind(_tutti.DTYPES["f64"], 2, np.dtype("c16"))
_ADDED_NAMES = {code: name for name, code in _ADDED.items()}


def kind_of(dtype):
    """The Kind of a numpy type in the machine's byte order; raises for what cannot travel."""
    kind = _KINDS.get(dtype)
    if kind is not None:
        return kind
    code = _ADDED.get(dtype.name)
    if code is None:
        hint = "; its integers can: x.view('i8')" if dtype.kind in "mM" else ""
        raise InvalidArgument(f"arrays of dtype {dtype} cannot travel{hint}")
    kind = _KINDS[dtype] = Kind(code, 1, dtype)
    return kind


def _added_kind(code):
    """Of a type that numpy lacks: with ml_dtypes it has one, without it is None."""
    try:
        import ml_dtypes
    except ImportError:
        return Kind(code, 1, None)
    return kind_of(np.dtype(getattr(ml_dtypes, _ADDED_NAMES[code])))


def _foreign(x, stream):
    """(array, Kind or None, new, may be written) for something that is no numpy array."""
    try:
        view = memoryview(x)
    except TypeError:
        pass
    else:
        return np.asarray(view), None, False, not view.readonly
    # Producers of the old protocol cannot say that memory is read-only; JAX's always is.
    immutable = type(x).__module__.partition(".")[0] in ("jax", "jaxlib")
    if device.is_on_gpu(x):
        array, writable = device.view(x, stream, kind_of, _added_kind)
        return array, array.kind, False, writable and not immutable
    if hasattr(x, "__dlpack__"):
        array, code, writable = _tutti.from_dlpack(x)
        kind = None
        if code >= 0:
            kind = _added_kind(code)
            array = array if kind.dtype is None else array.view(kind.dtype)
        return array, kind, False, writable and not immutable
    # What numpy makes of numbers and lists is new; other objects may show it memory of their own.
    shown = hasattr(x, "__array__") or hasattr(x, "__array_interface__")
    return np.asarray(x), None, not shown, False


def _check_type(array):
    if isinstance(array, np.ma.MaskedArray):
        raise InvalidArgument("masked arrays cannot travel: the mask would be lost; use x.filled()")


def read(x, stream=0):
    """(contiguous array, Kind, whether the array is a new one) of an input. On a GPU: what is put
    into `stream` next finds its contents."""
    kind, new = None, False
    if type(x) is np.ndarray:
        array = x
    elif isinstance(x, np.ndarray):
        _check_type(x)
        array = np.asarray(x)
    else:
        array, kind, new, _ = _foreign(x, stream)
        if isinstance(array, device.DeviceArray):
            return array, kind, False
    if kind is None:
        if not array.dtype.isnative:
            array, new = array.astype(array.dtype.newbyteorder("=")), True
        kind = _KINDS.get(array.dtype) or kind_of(array.dtype)
    if not array.flags.c_contiguous:
        array, new = array.copy(order="C"), True
    return array, kind, new


def write(out, stream=0):
    """(contiguous array to write into, Kind, array to copy that to or None) of an output. On a GPU:
    what is put into `stream` next may write it."""
    kind = None
    if isinstance(out, np.ndarray):
        _check_type(out)
        view, writable = np.asarray(out), out.flags.writeable
    else:
        view, kind, _, writable = _foreign(out, stream)
        if not writable and isinstance(out, (list, tuple, int, float, complex)):
            raise InvalidArgument(f"out must be an array; this is a {type(out).__name__}")
    if not writable:
        raise InvalidArgument(f"out is read-only ({type(out).__name__})")
    if isinstance(view, device.DeviceArray):
        return view, kind, None
    native = view.dtype if view.dtype.isnative else view.dtype.newbyteorder("=")
    kind = kind or kind_of(native)
    if view.flags.c_contiguous and native is view.dtype:
        return view, kind, None
    # Some operations leave a part of the output as it was: so the copy starts with its contents.
    return view.astype(native, order="C", copy=True), kind, view


def new(shape, kind, like):
    """A new array for a result of what `like` is a part of."""
    if isinstance(like, device.DeviceArray):
        raise InvalidArgument("the result of arrays on a GPU needs a place: say where it goes with "
                              "out=")
    if kind.dtype is None:
        raise Unsupported(f"numpy has no {_ADDED_NAMES[kind.code]} without the package ml_dtypes: "
                          "say where the result goes with out=")
    return np.empty(shape, kind.dtype)


def is_list(x):
    """Whether it is one array per rank, rather than a list of numbers."""
    if not isinstance(x, (list, tuple)):
        return False
    return bool(x) and all(isinstance(part, (np.ndarray, memoryview, bytearray)) or
                           hasattr(part, "__dlpack__") or
                           hasattr(part, "__cuda_array_interface__") for part in x)
