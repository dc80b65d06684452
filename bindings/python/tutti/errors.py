"""What tutti raises, in Python.

Every failure is a `tutti.Error`. Its class says what happened (docs/errors.md tells each), and it
is also the built-in exception that Python programs expect for such a thing: `except TimeoutError`
and `except ConnectionError` work. It carries the whole message and where it happened:

    try:
        tutti.all_reduce(x, out=x)
    except tutti.PeerLost as lost:
        print(lost, lost.code, lost.rank, lost.peer, lost.sequence)

This module needs nothing but Python: it is there without the extension, and errors can be pickled
(worker pools send them from process to process).
"""

__all__ = ["Error", "InvalidArgument", "Mismatch", "Unsupported", "TimedOut", "PeerLost", "Aborted",
           "IoError", "OutOfMemory", "Corrupt", "Internal", "from_code"]


class Error(RuntimeError):
    """A failure that tutti reports. The attributes:

    code      the word of docs/errors.md: "timed_out", "peer_lost", …
    rank      the rank that reports it, -1 where there is none
    peer      the rank at fault, -1 where nobody is
    sequence  the number of the operation in its group, 0 where there is none
    """

    code = "internal"

    # Everything is set here, and told here: OSError would make something else of the arguments.
    def __init__(self, message="", rank=-1, peer=-1, sequence=0):
        super().__init__(message)
        self.args = (message,)
        self.message = message
        self.rank = rank
        self.peer = peer
        self.sequence = sequence

    def __str__(self):
        return self.message

    def __repr__(self):
        return f"{type(self).__name__}({self.message!r})"

    def __reduce__(self):
        # Notes and attributes that users added travel as well.
        return type(self), (self.message, self.rank, self.peer, self.sequence), self.__dict__


class InvalidArgument(Error, ValueError):
    """The caller's mistake; nothing was started, and the group is as good as before."""

    code = "invalid_argument"


class Mismatch(Error):
    """Ranks called different things where they must agree; the message says who called what."""

    code = "mismatch"


class Unsupported(Error, NotImplementedError):
    """This machine or this build cannot do it."""

    code = "unsupported"


class TimedOut(Error, TimeoutError):
    """The deadline passed; the message says who did not come."""

    code = "timed_out"


class PeerLost(Error, ConnectionError):
    """A rank died or left; `peer` names it."""

    code = "peer_lost"


class Aborted(Error):
    """Somebody called abort on the group; the message has the reason."""

    code = "aborted"


class IoError(Error, OSError):
    """The operating system refused: a socket, a file, the store's server."""

    code = "io"


class OutOfMemory(Error, MemoryError):
    """Memory could not be had."""

    code = "out_of_memory"


class Corrupt(Error):
    """Bytes that cannot be what they claim: another protocol or version, a broken file."""

    code = "corrupt"


class Internal(Error):
    """A bug of tutti's."""

    code = "internal"


_BY_CODE = {kind.code: kind for kind in (InvalidArgument, Mismatch, Unsupported, TimedOut, PeerLost,
                                         Aborted, IoError, OutOfMemory, Corrupt, Internal)}


def from_code(code, message, rank=-1, peer=-1, sequence=0):
    """The exception for a code's word. The extensions call this; a word of a later version gives a
    plain Error that carries it."""
    kind = _BY_CODE.get(code)
    if kind is not None:
        return kind(message, rank, peer, sequence)
    error = Error(message, rank, peer, sequence)
    error.code = code
    return error
