"""New weights for whoever samples or serves beside the training.

    sender = tutti_torch.hand_over.Sender(receivers=[1])          # rank 0, the trainer
    sender.send(step, model.state_dict())                         # goes on in the background

    receiver = tutti_torch.hand_over.Receiver(trainer=0)          # rank 1
    if receiver.poll():
        model.load_state_dict(receiver.weights)

A receiver shows whole versions only, whoever is killed when. One that is lost is left out and named; the
training goes on. Tensors may be on the CPU or on a GPU, on either side; between processes on one GPU they
are copied on it, in stream order: `send` follows the current stream and leaves the tensors to it again.

Trainer and receivers are ranks of one group, which ends with the first one that is lost: train on another.
"""

import datetime
import weakref

import torch
import torch.distributed as dist

from tutti import errors

from . import _C, _backend, _span

_open = weakref.WeakSet()


def _end():
    """The process is about to end: the other side hears goodbye."""
    for each in list(_open):
        each.close()


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

    `receivers` and `trainer` are ranks of `group`; absent: all others. `bucket_bytes` is how much travels as
    one message; 0: 16 MiB, on a GPU 64 MiB.
    """

    def __init__(self, group=None, receivers=None, trainer=0, bucket_bytes=0):
        if receivers is None:
            receivers = [rank for rank in range(dist.get_world_size(group)) if rank != trainer]
        self._it = _C.TensorSender(_backend(group), list(receivers), trainer, bucket_bytes)
        _open.add(self)

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
        """Receivers that were lost: {rank: exception}."""
        return {rank: errors.from_code(*why) for rank, why in self._it.lost()}


class Receiver(_Closing):
    """The other side. `device`: where weights are to lie; absent: on the GPU if the trainer's are, and there is one."""

    def __init__(self, group=None, trainer=0, device=None):
        device = torch.device(device) if device is not None else None
        kind = device.type if device else ""
        if kind not in ("", "cpu", "cuda"):
            raise errors.InvalidArgument(f"weights are received on the CPU or on a GPU, not on {device}")
        if kind == "cuda":
            torch.cuda.init()
        index = device.index if device and device.index is not None else -1
        self._it = _C.TensorReceiver(_backend(group), trainer, kind, index)
        _open.add(self)

    def poll(self):
        """Takes in what has come, and does not block. True: there is a newer version than before.

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
