"""Collectives for numpy arrays, and for whatever has the buffer protocol or speaks DLPack."""

from .errors import (Aborted, Corrupt, Error, Internal, InvalidArgument, IoError, Mismatch,
                     OutOfMemory, PeerLost, TimedOut, Unsupported)
