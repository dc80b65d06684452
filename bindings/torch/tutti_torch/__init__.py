"""tutti as a backend of torch.distributed.

    import torch.distributed as dist
    import tutti_torch

    dist.init_process_group("tutti")

Everything else is torch.distributed as it is documented. Failures are raised as the exceptions of
tutti.errors, which are re-exported here.
"""

import datetime
import multiprocessing.util
import os
import warnings

import torch
import torch.distributed as dist

from tutti.errors import (Aborted, Corrupt, Error, Internal, InvalidArgument, IoError, Mismatch,
                          OutOfMemory, PeerLost, TimedOut, Unsupported)

from . import _C, _futures, _slurm

__version__ = _C.__version__
__all__ = ["Aborted", "Corrupt", "Error", "Internal", "InvalidArgument", "IoError", "Mismatch",
           "OutOfMemory", "PeerLost", "TimedOut", "Unsupported", "abort", "describe", "empty",
           "monitored_barrier", "shrink"]


_ends_in = None  # the process at whose end _end will be called


def _end():
    """What is chained has no interpreter to run in from here on; then the other ranks hear goodbye."""
    _futures.end()
    _C.end_callbacks()
    _C.leave_all_groups()
    _futures.end()  # those that waited for operations have heard of their end


_heir = None  # what shrink has made, on its way to be the default group
_shrinks = 0  # the same number on all survivors


def _create(options, _):
    global _ends_in
    if _heir is not None:
        return _heir
    if _ends_in != os.getpid():
        _ends_in = os.getpid()
        # Not atexit, which does not run in the children of multiprocessing.
        multiprocessing.util.Finalize(None, _end, exitpriority=0)
    ranks = options.global_ranks_in_group
    if not ranks:
        return _C.create(options.store, options.group_rank, options.group_size, options.timeout, "world")
    name = f"group_{options.group_id}"
    world = _world()
    if world is None:
        return _C.create(options.store, options.group_rank, options.group_size, options.timeout, name)
    try:
        return _C.create_within(world, options.store, ranks, options.timeout, name)
    except Error as failure:
        # A world that has failed has failed on every rank. Those that are there meet afresh.
        is_gone = isinstance(failure, PeerLost) and failure.peer in ranks
        if is_gone or _C.is_healthy(world):
            raise
        return _C.create(options.store, options.group_rank, options.group_size, options.timeout, name)


def _world():
    """The backend of the default group, whose links other groups share; None: it is not tutti's."""
    try:
        backend = _backend(None)
    except (RuntimeError, ValueError):
        return None
    return backend if _C.is_tutti(backend) else None


def _register():
    if hasattr(dist.Backend, "TUTTI"):  # by tutti_torch_autoload
        return
    if int(torch.__version__.split(".")[0]) >= 2:
        dist.Backend.register_backend("tutti", _create, extended_api=True, devices=["cpu"])
    else:
        dist.Backend.register_backend("tutti", _create, extended_api=True)


_register()
_slurm.fill_in(os.environ)


def _backend(group):
    """What _C takes: the backend inside of a process group."""
    if group is None:
        group = dist.distributed_c10d._get_default_group()
    if hasattr(group, "_get_backend"):
        group = group._get_backend(torch.device("cpu"))
        return getattr(group, "wrapped_pg", group)
    return group


def empty(*size, dtype=None, group=None):
    """A tensor of zeros in symmetric memory: collectives of `group` on it copy nothing.

    Collective: all ranks of the group call it, with the same arguments. The memory lives as long as
    the tensor and its views.

        bucket = tutti_torch.empty(1 << 20)
        dist.all_reduce(bucket)
    """
    if len(size) == 1 and not isinstance(size[0], int):
        size = tuple(size[0])
    dtype = dtype or torch.get_default_dtype()
    count = 1
    for length in size:
        count *= length
    item_bytes = torch.empty(0, dtype=dtype).element_size()
    return _C.allocate(_backend(group), count * item_bytes).view(dtype).view(size)


def monitored_barrier(group=None, timeout=None, wait_all_ranks=False):
    """A barrier whose error, raised on every rank that came, names the ranks that did not.

    The group is as good as before. With wait_all_ranks the error names all missing ranks, otherwise
    the first. `timeout` is a datetime.timedelta or seconds; absent: the group's. A rank that is not in
    the group returns at once.
    """
    if dist.distributed_c10d._rank_not_in_group(group):
        warnings.warn("monitored_barrier was called by a rank that is not in the group", stacklevel=2)
        return
    if timeout is None:
        timeout = datetime.timedelta(milliseconds=-1)
    elif not isinstance(timeout, datetime.timedelta):
        timeout = datetime.timedelta(seconds=timeout)
    _C.monitored_barrier(_backend(group), timeout, wait_all_ranks)


def shrink(timeout=None):
    """After a failure: makes what is left of the default group the new default group, and returns it.

    All survivors call it. They agree on who they are, also when another dies meanwhile, keep their
    order, and get new ranks: ask dist.get_rank() again, and make other groups anew. Ranks that do not
    come within `timeout` (a datetime.timedelta or seconds; absent: the group's) count as lost, and get
    PeerLost when they come later. Torch itself meets in the default store once more: that of torchrun
    outlives any rank, one that rank 0 keeps does not outlive rank 0.

        try:
            train()
        except tutti_torch.PeerLost:
            tutti_torch.shrink()
    """
    global _heir, _shrinks
    if timeout is None:
        timeout = datetime.timedelta(0)
    elif not isinstance(timeout, datetime.timedelta):
        timeout = datetime.timedelta(seconds=timeout)
    store = dist.distributed_c10d._get_default_store()
    smaller = _C.shrink(_backend(None), timeout)
    _shrinks += 1
    dist.destroy_process_group()
    _heir = smaller
    try:
        dist.init_process_group("tutti", store=dist.PrefixStore(f"tutti_shrunk_{_shrinks}", store),
                                rank=smaller.rank(), world_size=smaller.size())
    finally:
        _heir = None
    return dist.distributed_c10d._get_default_group()


def describe(group=None):
    """A few lines on who is linked to whom, and how."""
    return _C.describe(_backend(group))


def abort(group=None):
    """Ends all pending and later operations of the group, on every rank, with tutti.Aborted."""
    _C.abort(_backend(group))
