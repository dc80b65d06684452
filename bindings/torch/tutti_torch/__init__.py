"""tutti as a backend of torch.distributed.

    import torch.distributed as dist
    import tutti_torch

    dist.init_process_group("tutti")

Everything else is torch.distributed as it is documented. Failures are raised as the exceptions of
tutti.errors, which are re-exported here.
"""

import collections
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
           "DataParallel", "LossGuard", "Mesh", "OutOfMemory", "PeerLost", "Spikes", "TimedOut", "Unsupported", "abort",
           "describe", "empty", "grow", "hand_over", "join", "metrics", "monitored_barrier", "partial",
           "redistribute", "replicate", "shard", "shared_heap_usage", "shrink", "tensor_parallel",
           "use_shared_heap", "waiting"]


_ends_in = None  # the process at whose end _end will be called


def _end():
    """What is chained has no interpreter to run in from here on; then the other ranks hear goodbye."""
    _futures.end()
    data_parallel._end()
    hand_over._end()
    mesh._end()
    _C.end_callbacks()
    _C.leave_all_groups()
    _futures.end()  # those that waited for operations have heard of their end


def _ends_with_process():
    global _ends_in
    if _ends_in != os.getpid():
        _ends_in = os.getpid()
        # Not atexit, which does not run in the children of multiprocessing.
        multiprocessing.util.Finalize(None, _end, exitpriority=0)


_heir = None  # what shrink, grow or join has made, on its way to be the default group


def _create(options, _):
    _ends_with_process()
    if _heir is not None:
        return _heir
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
        dist.Backend.register_backend("tutti", _create, extended_api=True, devices=["cpu", "cuda"])
    else:
        dist.Backend.register_backend("tutti", _create, extended_api=True)


_register()
_slurm.fill_in(os.environ)


def _backend(group):
    """What _C takes: the backend inside of a process group; tutti's, where devices have different ones."""
    if group is None:
        group = dist.distributed_c10d._get_default_group()
    if not hasattr(group, "_get_backend"):
        return group
    backends = [getattr(backend, "wrapped_pg", backend) for backend in _backends(group)]
    return next((backend for backend in backends if _C.is_tutti(backend)), backends[0])


def _backends(group):
    found = []
    for device in ("cpu", "cuda"):
        try:
            found.append(group._get_backend(torch.device(device)))
        except RuntimeError:  # it has none for such a device
            pass
    if not found:
        raise InvalidArgument("the process group has a backend neither for CPU nor for CUDA tensors")
    return found


def empty(*size, dtype=None, device="cpu", group=None):
    """A tensor of zeros in symmetric memory: collectives of `group` on it copy nothing.

    Collective: all ranks of the group call it, with the same arguments. The memory lives as long as
    the tensor and its views. A rank uses one GPU: with device="cuda" the tensor is on the one that its
    groups use already, or else on the current one.

        bucket = tutti_torch.empty(1 << 20)
        dist.all_reduce(bucket)
    """
    device = torch.device(device)
    if len(size) == 1 and not isinstance(size[0], int):
        size = tuple(size[0])
    dtype = dtype or torch.get_default_dtype()
    count = 1
    for length in size:
        count *= length
    item_bytes = torch.empty(0, dtype=dtype, device=device).element_size()  # which initialises CUDA
    return _C.allocate(_backend(group), count * item_bytes, device).view(dtype).view(size)


SharedHeapUsage = collections.namedtuple("SharedHeapUsage", "limit_bytes in_use_bytes kept_bytes peak_bytes")


def use_shared_heap():
    """From now on CPU tensors of 64 KiB and more lie in memory that the ranks of the host have mapped.

    Collectives on them copy nothing, as on those of `empty`: DDP's buckets, gradients and every other large
    tensor, with no other change to the program. Call it before init_process_group, or set
    TUTTI_SHARED_HEAP=1, which does so at `import tutti_torch`. Tensors that there are, and small ones, stay
    where they are. TUTTI_SHARED_HEAP_BYTES limits it; tensors that find no room go where torch puts them.

    After a fork the child has a copy; what the parent writes into a tensor then may show in the child until
    the child has written there itself (docs/transports/shared_heap.md).
    """
    if dist.is_initialized():
        warnings.warn("use_shared_heap() comes after init_process_group(): only groups that are made from now on "
                      "have the ranks map each other's heaps", stacklevel=2)
    _C.use_shared_heap()


def shared_heap_usage():
    """What this process's shared heap holds, in bytes: limit, in use, kept for later, the most in use."""
    return SharedHeapUsage(*_C.shared_heap_usage())


if os.environ.get("TUTTI_SHARED_HEAP") and _C.wants_shared_heap():
    use_shared_heap()


def _span(timeout, **absent):
    """What _C takes for a timeout: a datetime.timedelta or seconds; None: `absent`."""
    if timeout is None:
        return datetime.timedelta(**absent)
    return timeout if isinstance(timeout, datetime.timedelta) else datetime.timedelta(seconds=timeout)


def monitored_barrier(group=None, timeout=None, wait_all_ranks=False):
    """A barrier whose error, raised on every rank that came, names the ranks that did not.

    The group is as good as before. With wait_all_ranks the error names all missing ranks, otherwise
    the first. `timeout` is a datetime.timedelta or seconds; absent: the group's. A rank that is not in
    the group returns at once.
    """
    if dist.distributed_c10d._rank_not_in_group(group):
        warnings.warn("monitored_barrier was called by a rank that is not in the group", stacklevel=2)
        return
    _C.monitored_barrier(_backend(group), _span(timeout, milliseconds=-1), wait_all_ranks)


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
    store = dist.distributed_c10d._get_default_store()
    _check(store)  # while there is still a group to keep
    return _replace(_C.shrink(_backend(None), _span(timeout, seconds=0)), store)


def waiting(store):
    """How many processes wait in `store` (join). Cheap, and not collective: one rank asks."""
    return _C.waiting(store)


def grow(store, most=None):
    """Takes in processes that wait in `store` (join), until there are `most` ranks (absent: all of them).

    Collective, between two steps. Makes the larger group the default one and returns it, or returns None
    where nobody waits. Ranks of before keep their rank, newcomers follow; make other groups and wrappers
    (DDP) anew, and tell newcomers where you are. The store is one that outlives ranks, and the one
    that newcomers join by: a TCPStore of another process, a FileStore.

        if tutti_torch.grow(store, most=4):
            dist.broadcast(weights, 0)
    """
    _check(store)
    larger = _C.grow(_backend(None), store, 2**31 - 1 if most is None else most)
    return None if larger is None else _replace(larger, store)


def join(store, timeout=None):
    """For a process that comes back: instead of init_process_group, waits in `store` until the others grow.

    Returns the default group. Rank and size are the group's to say. `timeout` (a datetime.timedelta or
    seconds; absent: torch's default) is the group's, too; TimedOut when nobody has grown by then.
    """
    if dist.is_initialized():
        raise InvalidArgument("join() is for a process without a default group; others call grow()")
    timeout = dist.distributed_c10d.default_pg_timeout if timeout is None else _span(timeout)
    return _make_default(_C.join(store, timeout), store, "tutti")


def _check(store):
    """The store is there: torch is going to meet in it."""
    try:
        store.add("tutti_torch/looked", 1)
    except RuntimeError as error:
        raise IoError(f"torch's store is gone, in which ranks would meet: {error}") from error


def _replace(heir, store):
    """Makes it the default group in place of the one that is, with that one's backends."""
    words = dist.get_backend()
    if words == "undefined":  # init_process_group was not told one
        words = dist.get_backend_config()
    dist.destroy_process_group()
    return _make_default(heir, store, words)


def _make_default(heir, store, words):
    global _heir
    # Nobody has met under this name before, whatever each of them has been through.
    name = torch.tensor([int.from_bytes(os.urandom(7), "little")])
    heir.broadcast([name], _from_rank_0()).wait()
    _heir = heir
    try:
        dist.init_process_group(words, store=dist.PrefixStore(f"tutti_torch_{name.item()}", store),
                                rank=heir.rank(), world_size=heir.size(), timeout=_C.timeout(heir))
    finally:
        _heir = None
    return dist.distributed_c10d._get_default_group()


def _from_rank_0():
    options = dist.BroadcastOptions()
    options.rootRank = 0
    return options


def describe(group=None):
    """A few lines on who is linked to whom, and how."""
    return _C.describe(_backend(group))


def abort(group=None):
    """Ends all pending and later operations of the group, on every rank, with tutti.Aborted."""
    _C.abort(_backend(group))


from . import data_parallel, hand_over, mesh, metrics, tensor_parallel  # noqa: E402  (they use what is above)
from .data_parallel import DataParallel  # noqa: E402
from .loss_guard import LossGuard, Spikes  # noqa: E402
from .mesh import Mesh, partial, redistribute, replicate, shard  # noqa: E402
