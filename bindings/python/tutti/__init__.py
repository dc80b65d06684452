"""tutti: collectives for numpy arrays, and for whatever has the buffer protocol or speaks DLPack, in
CPU memory and on CUDA devices.

    import numpy as np
    import tutti

    tutti.init()                                  # tutti run, torchrun, mpirun or srun started us
    total = tutti.all_reduce(np.ones(4))          # a new array; out=x writes into x
    tutti.finalize()

The functions of this module run on the group that init() made; groups have the same as methods.
Errors are subclasses of tutti.Error. docs/tutorials/python.md tells more.
"""

from . import errors
from .errors import (Aborted, Corrupt, Error, Internal, InvalidArgument, IoError, Mismatch,
                     OutOfMemory, PeerLost, TimedOut, Unsupported)

try:
    from . import _tutti
except ImportError as missing:
    # The errors are of use alone; whoever asks for more hears what is missing.
    _missing = missing

    def __getattr__(name):
        if name.startswith("__"):
            raise AttributeError(name)
        raise ImportError(f"tutti.{name} needs the extension tutti._tutti, which cannot be loaded: "
                          f"{_missing}")
else:
    from ._tutti import Store, StoreServer, __version__
    from .collectives import Received, Recv, Send, any_source
    from .default import *
    from .device import DeviceArray
    from .groups import Group, Prediction
    from .meshes import Mesh
    from .pools import Pool
    from .work import Work
