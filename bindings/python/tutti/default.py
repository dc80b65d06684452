"""The default group of this process, and every operation on it as a function."""

import atexit
import functools
import inspect
import os

from .collectives import Collectives
from .errors import InvalidArgument
from .groups import Group, close_all, forget_all

_default = None


def _check_free():
    if is_initialized():
        raise InvalidArgument("there is a default group already; call tutti.finalize() first")


def init(rank=None, size=None, store=None, *, name="world", timeout=None, join_timeout=None,
         reduction_order="any", secret="", survives_losses=False):
    """Makes the default group, and returns it.

    Without arguments: of the ranks that tutti run, torchrun, mpirun or srun started (a group of one
    without them). With rank, size and store (a tutti.Store, "file:PATH" or "tcp:HOST:PORT"): of the
    ranks that meet there. `survives_losses`: this rank goes on where another is lost, and tutti run
    lets it, if every rank that is left says so.
    """
    global _default
    _check_free()
    given = dict(name=name, timeout=timeout, join_timeout=join_timeout,
                 reduction_order=reduction_order, survives_losses=survives_losses)
    if rank is None and size is None and store is None:
        _default = Group.from_environment(**given)
    elif rank is None or size is None or store is None:
        raise InvalidArgument("rank, size and store go together")
    else:
        _default = Group.create(store, rank, size, secret=secret, **given)
    return _default


def join(store, **options):
    """Waits in `store` until a group takes this rank in (Group.grow); the grown group becomes the
    default one, and is returned. Options as for Group.join."""
    global _default
    _check_free()
    _default = Group.join(store, **options)
    return _default


join.__signature__ = inspect.signature(Group.join)


def is_initialized():
    """Whether there is a default group."""
    return _default is not None and not _default.closed


def group():
    """The default group."""
    if _default is None or _default.closed:
        raise InvalidArgument("there is no group; call tutti.init() first")
    return _default


def finalize():
    """Leaves the default group. Calling it again does nothing."""
    global _default
    left, _default = _default, None
    if left is not None:
        left.close()


def rank():
    return group().rank


def size():
    return group().size


def _on_default(method):
    @functools.wraps(method)
    def call(*args, **options):
        if _default is None:
            group()
        return method(_default, *args, **options)
    signature = inspect.signature(method)
    call.__signature__ = signature.replace(parameters=list(signature.parameters.values())[1:])
    del call.__wrapped__
    return call


_operations = [name for name, value in vars(Collectives).items()
               if callable(value) and not name.startswith("_")]
_of_group = ["split", "subgroup", "duplicate", "empty", "pool", "forget", "predict", "abort",
             "describe"]
for _name in _operations + _of_group:
    globals()[_name] = _on_default(getattr(Group, _name))
del _name

__all__ = ["init", "join", "is_initialized", "group", "finalize", "rank", "size", *_operations,
           *_of_group]

def _after_fork():
    global _default
    forget_all()
    _default = None


# Forgotten groups are left in good order, so that other ranks see this one go at once.
atexit.register(close_all)
# A child may make groups of its own.
os.register_at_fork(after_in_child=_after_fork)
