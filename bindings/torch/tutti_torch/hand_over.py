"""New weights for whoever samples or serves beside the training.

    sender = tutti_torch.hand_over.Sender(receivers=[1])          # rank 0, the trainer
    sender.send(step, model.state_dict())                         # goes on in the background

    receiver = tutti_torch.hand_over.Receiver(trainer=0)          # rank 1
    if receiver.poll():
        model.load_state_dict(receiver.weights)

Receivers may also be processes of other jobs, or of none, that come and go while training goes on:

    sender = tutti_torch.hand_over.Sender(receivers=[], address="0.0.0.0:29600", secret_file="job.key")
    receiver = tutti_torch.hand_over.Receiver(address="trainer-host:29600", secret_file="job.key")

A receiver shows whole versions only, whoever is killed when; one that seldom looks skips versions and holds up
nobody. One that is lost is left out and named; the training goes on. Several receivers on CPUs get weights by
broadcast: the trainer sends them about once. Tensors may be on the CPU or on a GPU, on either side; between processes
on one GPU they are copied on it, in stream order: `send` follows the current stream and leaves the tensors to it again.

Trainer and receivers of one job are ranks of one group, which ends with the first one that is lost: train on another.
"""

import datetime
import weakref

import torch
import torch.distributed as dist

from tutti import errors

from . import _C, _backend, _ends_with_process, _span

_open = weakref.WeakSet()


def _end():
    """The process is about to end: the other side hears goodbye."""
    for each in list(_open):
        each.close()


def _opened(each):
    _open.add(each)
    _ends_with_process()


class _Closing:
    def close(self):
        """Leaves the other side, which hears of it; on a receiver when no view of its weights is held any more."""
        self._it.close()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()


class Sender(_Closing):
    """The trainer's side. Made together with its receivers: blocks until each of them makes its own.

    `receivers` and `trainer` are ranks of `group`; absent: all others; []: none, and no group is needed.
    `bucket_bytes` is how much travels as one message; 0: 16 MiB, on a GPU 128 MiB. With `address`, "host:port", receivers
    of other jobs may come there who know the secret in `secret_file`: at least 16 bytes, mode 0600.
    """

    def __init__(self, group=None, receivers=None, trainer=0, bucket_bytes=0, address=None, secret_file=None):
        if receivers is None:
            receivers = [rank for rank in range(dist.get_world_size(group)) if rank != trainer]
        other_jobs = bucket_bytes, address or "", secret_file or ""
        if receivers or not address:
            self._it = _C.TensorSender(_backend(group), list(receivers), trainer, *other_jobs)
        else:
            self._it = _C.TensorSender(*other_jobs)
        _opened(self)

    def send(self, version, weights, lend=False):
        """Sends tensors by name, such as a state_dict, to every living receiver, in the background.

        `version` is a positive number that rises. Waits for the version before, if that is still on its
        way. The tensors are copied; with `lend` they are not, and must not change until flush() returns: it
        saves a copy on a GPU, for a few large tensors.
        """
        self._it.send(version, [(name, tensor.detach()) for name, tensor in dict(weights).items()], lend)

    def flush(self):
        """Blocks until the last version has reached every living receiver."""
        self._it.flush()

    def lost(self):
        """Receivers that were lost: {rank: exception}; those of other jobs are -1, -2, … as they came."""
        return {rank: errors.from_code(*why) for rank, why in self._it.lost()}

    def receivers(self):
        """Those that are there: {rank: (host and pid, the newest version that it has)}; 0: none yet."""
        return {rank: (where, version) for rank, where, version in self._it.receivers()}

    @property
    def address(self):
        """What receivers of other jobs attach to; "": nothing."""
        return self._it.address


class Receiver(_Closing):
    """The other side. `device`: where weights are to lie; absent: on the GPU if the trainer's are, and there is one.

    With `address` and `secret_file`: of a trainer in another job, for which it waits `patience` (a datetime.timedelta or
    seconds; absent: TUTTI_JOIN_TIMEOUT). No group is needed.
    """

    def __init__(self, group=None, trainer=0, device=None, address=None, secret_file=None, patience=None):
        device = torch.device(device) if device is not None else None
        kind = device.type if device else ""
        if kind not in ("", "cpu", "cuda"):
            raise errors.InvalidArgument(f"weights are received on the CPU or on a GPU, not on {device}")
        if kind == "cuda":
            torch.cuda.init()
        index = device.index if device and device.index is not None else -1
        if address is None:
            self._it = _C.TensorReceiver(_backend(group), trainer, kind, index)
        else:
            span = datetime.timedelta(0) if patience is None else _span(patience)
            self._it = _C.TensorReceiver(address, secret_file or "", span, kind, index)
        _opened(self)

    def poll(self):
        """Shows the newest version that is whole, and does not block. True: it is newer than before.

        Raises what ended the trainer's group; the last version stays.
        """
        return self._it.poll()

    def wait_for(self, version, timeout=None):
        """Blocks for a version at least this new; TimedOut after `timeout` (a datetime.timedelta or seconds)."""
        forever = datetime.timedelta(days=36500)
        self._it.wait_for(version, forever if timeout is None else _span(timeout))

    @property
    def version(self):
        """Of the weights that are shown; 0: none have come yet."""
        return self._it.version

    @property
    def weights(self):
        """{name: tensor}, views of memory that later versions are received into.

        Valid until poll or wait_for shows a newer version; on a GPU for what the current stream was given
        until then. Copy what is to stay, as load_state_dict does.
        """
        return dict(self._it.weights)
