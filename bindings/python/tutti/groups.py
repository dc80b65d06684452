"""Groups of ranks, and what they can do together."""

import collections
import weakref

from . import _tutti, arrays, device as devices, pools
from .collectives import Collectives
from .errors import Error, InvalidArgument

Prediction = collections.namedtuple("Prediction", "seconds symmetric_seconds algorithm")
Prediction.__doc__ = "What an operation should cost, on memory of any kind and on symmetric memory."

# Left in good order at exit, whoever still holds them.
_live = weakref.WeakSet()


def open_store(store):
    """A Store from a Store, or from "file:PATH", "tcp:HOST:PORT" or "HOST:PORT"."""
    if not isinstance(store, str):
        return store
    scheme, colon, rest = store.partition(":")
    if colon and scheme == "file":
        return _tutti.Store.file(rest)
    if colon and rest:
        return _tutti.Store.connect(rest if scheme == "tcp" else store)
    raise InvalidArgument(f"store is a tutti.Store, 'file:PATH' or 'tcp:HOST:PORT', not '{store}'")


class Group(Collectives):
    """A fixed set of ranks. Attributes: rank, size, name, reduction_order.

    All ranks make the same calls in the same order. A group is left with close(), at the end of a
    `with` block, or when the program ends.
    """

    def __init__(self, group):
        self._group = group
        self._run = group.runner()
        self._plain_fold = group.plain_fold()
        self.rank = group.rank()
        self.size = group.size()
        self.name = group.name()
        self.reduction_order = group.reduction_order()
        _live.add(self)

    @classmethod
    def create(cls, store, rank, size, *, name="world", timeout=None, join_timeout=None,
               reduction_order="any", secret="", survives_losses=False):
        """Meets the other ranks in `store`. Seconds: `timeout` of an operation, `join_timeout` of
        this meeting; without them the environment's (TUTTI_TIMEOUT, TUTTI_JOIN_TIMEOUT).
        `survives_losses`: this rank goes on where another is lost, and tutti run lets it."""
        return cls(_tutti.Group.create(open_store(store), rank, size, name, reduction_order,
                                       timeout, join_timeout, secret, survives_losses))

    @classmethod
    def from_environment(cls, *, name="world", timeout=None, join_timeout=None,
                         reduction_order="any", survives_losses=False):
        """The ranks that tutti run, torchrun, mpirun or srun started; else a group of one."""
        return cls(_tutti.Group.from_environment(name, reduction_order, timeout, join_timeout,
                                                 survives_losses))

    @classmethod
    def join(cls, store, *, name="world", timeout=None, join_timeout=None, reduction_order="any",
             secret="", survives_losses=False):
        """A rank that comes later, or comes back: waits in `store`, at most `join_timeout` seconds,
        until a group takes it in by grow, which says its rank. Name, reduction order and secret are
        those of that group."""
        return cls(_tutti.Group.join(open_store(store), name, reduction_order, timeout,
                                     join_timeout, secret, survives_losses))

    def hosts(self):
        """The host of each rank, as numbers from 0 in the order of ranks."""
        return self._group.hosts()

    def label_ranks(self, labels):
        """What the program calls each rank, such as "dp 1, tp 0": errors, logs and `tutti show job`
        print it beside host and pid. Local; all ranks say the same."""
        self._group.label_ranks([str(label) for label in labels])

    def split(self, color, key=0, name="", *, reduction_order=None, urgency="normal"):
        """One new group per color, called by all ranks. A negative color gets None; the others are
        ordered by key, ties by rank. Where groups want the same link or core, 'urgent' ones go before
        'normal' ones, and these before 'bulk'."""
        made = self._group.split(color, key, name, reduction_order, urgency)
        return None if made is None else Group(made)

    def subgroup(self, ranks, tag=0, name="", *, reduction_order=None, urgency="normal"):
        """A group of these ranks. Its members call it with the same list and tag; others may, and
        get None."""
        ranks = [int(rank) for rank in ranks]
        if self.rank not in ranks:
            return None
        return Group(self._group.subgroup(ranks, tag, name, reduction_order, urgency))

    def duplicate(self, name="", reduction_order=None, urgency="normal"):
        """The same ranks once more, for traffic that must not queue behind this group's."""
        return Group(self._group.duplicate(name, reduction_order, urgency))

    def shrink(self, name="", timeout=None):
        """What is left of this group after a failure, as a new group on the same links. All
        survivors call it, and agree on who they are; those that do not come within `timeout`
        seconds (without one: the group's) count as lost, and get PeerLost when they come later."""
        return Group(self._group.shrink(name, timeout))

    def grow(self, store, most, *, name="world", secret=""):
        """Takes in the ranks that wait in `store` (tutti.join), up to `most` in all: a new group in
        which members keep their ranks and newcomers follow; this one stays as it is. None: nobody
        waits. All ranks call it; `name` and `secret` are those that the newcomers gave."""
        made = self._group.grow(open_store(store), most, name, secret)
        return None if made is None else Group(made)

    def empty(self, shape, dtype=float, *, device="cpu"):
        """An array in symmetric memory, zeros at first; collectives on it copy nothing. All ranks
        of the group call it alike. With device="cuda" a DeviceArray, on the GPU that this rank's
        groups use already, else on the thread's current one."""
        gpu = pools.on_gpu(device)
        return pools.array_in(lambda bytes: self._group.allocate(bytes, gpu), shape, dtype, gpu)

    def pool(self, bytes, *, device="cpu"):
        """Symmetric memory to take arrays from without the other ranks: a Pool. All ranks of the
        group call it alike, once."""
        gpu = pools.on_gpu(device)
        return pools.Pool(self._group.pool(bytes, gpu), gpu)

    def forget(self, x):
        """Memory of a GPU that this rank is about to free: ranks that have mapped it let go of it.
        `x` is an array in it, or the address where its allocation begins. What no group has seen is
        no error."""
        if not isinstance(x, int):
            array, _, _ = arrays.read(x)
            if not isinstance(array, devices.DeviceArray):
                raise InvalidArgument("forget is for arrays on a GPU; this is a "
                                      f"{type(x).__name__}")
            if not array.address:
                return
            x = _tutti.allocation_of(array.address)
        self._group.forget(x)

    def predict(self, collective, bytes):
        """What the library expects it to cost; `bytes` is the whole array."""
        number = _tutti.COLLECTIVES.get(collective)
        if number is None:
            raise InvalidArgument(f"'{collective}' is no collective; there are "
                                  f"{', '.join(_tutti.COLLECTIVES)}")
        return Prediction(*self._group.predict(number, bytes))

    def abort(self, reason="no reason was given"):
        """Ends all pending and later operations of the group, on every rank, with Aborted."""
        self._group.abort(reason)

    @property
    def health(self):
        """None, or the error that ended this group."""
        try:
            self._group.check_health()
        except Error as error:
            return error
        return None

    def describe(self):
        """A few lines on who is linked to whom, and how."""
        return self._group.describe()

    def close(self):
        """Leaves the group. Whatever is under way ends; calling it again does nothing."""
        self._group.close()

    @property
    def closed(self):
        return self._group.closed()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()

    def __repr__(self):
        state = ", closed" if self.closed else ""
        return f"<tutti.Group '{self.name}', rank {self.rank} of {self.size}{state}>"


_inherited = []


def forget_all():
    """In a child of fork(): the groups are the parent's. They are kept, so that nothing ends them."""
    _inherited.extend(_live)
    _live.clear()


def close_all():
    for group in list(_live):
        group.close()
