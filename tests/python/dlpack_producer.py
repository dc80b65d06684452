"""Arrays of an imaginary library, made with ctypes: DLPack as it looks in memory, both versions."""
import ctypes


class Device(ctypes.Structure):
    _fields_ = [("kind", ctypes.c_int32), ("id", ctypes.c_int32)]


class Element(ctypes.Structure):
    _fields_ = [("kind", ctypes.c_uint8), ("bits", ctypes.c_uint8), ("lanes", ctypes.c_uint16)]


class Tensor(ctypes.Structure):
    _fields_ = [("data", ctypes.c_void_p), ("device", Device), ("dimensions", ctypes.c_int32),
                ("element", Element), ("shape", ctypes.POINTER(ctypes.c_int64)),
                ("strides", ctypes.POINTER(ctypes.c_int64)), ("byte_offset", ctypes.c_uint64)]


Release = ctypes.CFUNCTYPE(None, ctypes.c_void_p)


class Managed(ctypes.Structure):
    _fields_ = [("tensor", Tensor), ("context", ctypes.c_void_p), ("release", Release)]


class ManagedVersioned(ctypes.Structure):
    _fields_ = [("major", ctypes.c_uint32), ("minor", ctypes.c_uint32),
                ("context", ctypes.c_void_p), ("release", Release), ("flags", ctypes.c_uint64),
                ("tensor", Tensor)]


_new_capsule = ctypes.pythonapi.PyCapsule_New
_new_capsule.restype = ctypes.py_object
_new_capsule.argtypes = [ctypes.c_void_p, ctypes.c_char_p, ctypes.c_void_p]


class Produced:
    """`raw` bytes as elements of (kind, bits). Counts how often they were taken and released."""

    def __init__(self, raw, kind, bits, shape, *, versioned=False, read_only=False, offset=0,
                 device=1, major=1):
        self.memory = (ctypes.c_uint8 * max(1, len(raw))).from_buffer_copy(raw or b"\0")
        self.taken = self.released = 0
        self.versioned = versioned
        self.device = device
        self._shape = (ctypes.c_int64 * max(1, len(shape)))(*shape)
        tensor = Tensor(ctypes.addressof(self.memory), Device(device, 0), len(shape),
                        Element(kind, bits, 1), self._shape, None, offset)
        self._release = Release(self._released)
        self._managed = ManagedVersioned(major, 0, None, self._release, int(read_only), tensor) \
            if versioned else Managed(tensor, None, self._release)

    def _released(self, _):
        self.released += 1

    def bytes(self):
        return bytes(self.memory)

    def __dlpack_device__(self):
        return (self.device, 0)

    def __dlpack__(self, **options):
        if options and not self.versioned:
            raise TypeError(f"unknown arguments {list(options)}")
        self.taken += 1
        name = b"dltensor_versioned" if self.versioned else b"dltensor"
        return _new_capsule(ctypes.addressof(self._managed), name, None)
