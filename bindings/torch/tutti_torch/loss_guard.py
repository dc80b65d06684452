"""What to do about a loss that cannot be right: the step is computed once more, before anything was updated.

    guard = tutti_torch.LossGuard(model)
    for x, y in data:
        for attempt in guard:                             # once; twice where a rank has rejected something
            loss = loss_fn(model(x), y)
            guard.validate(loss, rejection=torch.isnan, fatal=True)
            model.backward(loss)
            model.step()

What is right the second time was *transient*: suspect the hardware. What is not is *persistent*: with `fatal` the run
ends before the update, on every rank, and says on which rank it was.
"""

import logging
import math
import warnings

import torch

from tutti import errors

_log = logging.getLogger("tutti_torch")


class Spikes:
    """As a rejection: at least `factor` times the largest of the first `samples` values. Not fatal, mostly."""

    def __init__(self, factor=10.0, samples=100):
        self.factor, self.samples, self.seen, self.largest = factor, samples, 0, 0.0

    def __call__(self, value):
        size = abs(float(value))
        if self.seen < self.samples:
            self.seen += 1
            self.largest = max(self.largest, size)
            return False
        return size >= self.factor * self.largest > 0


class LossGuard:
    """Of one model. `most_skipped`: so many steps in a row without an update, and the run ends."""

    def __init__(self, model, most_skipped=10):
        self._model, self._most_skipped = model, most_skipped
        self._attempt, self._values, self._first = 1, [], []
        self.transient = self.skipped = self._skipped_in_a_row = self.step = 0

    def __iter__(self):
        """The attempts at one step; each ends with model.step()."""
        self.step += 1
        randomness = _random_state(self._model)
        self._attempt, self._values, self._first = 1, [], []
        yield 1
        if self._outcome() == "rejected":
            self._warn(f"is computed once more: {self._faults()}")
            _set_random_state(randomness)
            self._attempt, self._first, self._values = 2, self._values, []
            yield 2
            self._conclude()
        self._count_skipped()

    def validate(self, value, rejection=torch.isnan, tolerance=0.0, fatal=True, message="the loss"):
        """Looks at a number or tensor in forward; returns whether it was rejected.

        `rejection` says of the value whether it is wrong. Rejected again, it is the same fault if both values
        agree within `tolerance`, relative to the larger one. What is not `fatal` is warned about when
        the second attempt has shown it again, and the update is made.
        """
        value = value.detach() if isinstance(value, torch.Tensor) else value
        is_wrong = bool(torch.as_tensor(rejection(value)).any())
        self._values.append((message, is_wrong, value.clone() if isinstance(value, torch.Tensor) else value))
        if not is_wrong:
            return False
        if self._attempt == 1 or fatal:
            self._model._is_right = False
        if self._attempt == 2:
            self._tell_again(message, value, tolerance, fatal)
        return True

    def _tell_again(self, message, value, tolerance, fatal):
        place = len(self._values) - 1
        before = self._first[place][2] if place < len(self._first) else None
        kind = "the same fault" if before is not None and _agree(before, value, tolerance) else \
            f"not the same as the first time ({_shown(before)}): suspect the hardware"
        self._warn(f"{message} is {_shown(value)} again, {kind}"
                   + ("" if fatal else "; it is not fatal, and the update is made"))

    def _outcome(self):
        return self._model.last_step.outcome if self._model.last_step is not None else None

    def _conclude(self):
        if self._outcome() == "rejected":
            self._stop(f"step {self.step} is rejected also when computed again, so the fault is persistent: "
                       f"{self._faults()}. The run ends before the update; continue from the last checkpoint with "
                       "other data or a smaller learning rate")
        elif any(wrong for _, wrong, _ in self._first) and not any(wrong for _, wrong, _ in self._values):
            self.transient += 1
            _log.warning("step %d went well when it was computed again: the fault was transient; %d so far. If they go "
                         "on, suspect the hardware", self.step, self.transient)

    def _count_skipped(self):
        if self._outcome() != "skipped":
            self._skipped_in_a_row = 0
            return
        self.skipped += 1
        self._skipped_in_a_row += 1
        if self._skipped_in_a_row >= self._most_skipped:
            self._stop(f"{self._skipped_in_a_row} steps in a row, up to step {self.step}, were skipped, because gradients "
                       f"were not finite: {self._faults()}. Nothing is learned any more, so the run ends")

    def _faults(self):
        """"rank 2: the loss is nan"; what other ranks saw is known by its kind alone."""
        own = [f"{message} is {_shown(value)}" for message, is_wrong, value in self._values if is_wrong]
        told = []
        for fault in self._model.last_step.faults:
            who = f"rank {fault['rank']}" if fault["rank"] >= 0 else "found after the reduction"
            told.append(f"{who}: a value was rejected" if fault["is_loss"] else
                        f"{who}: gradient of '{fault['parameter']}'")
        return "; ".join(told) + (f" (on this rank {', '.join(own)})" if own else "")

    def _warn(self, text):
        warnings.warn(f"step {self.step}: {text}", RuntimeWarning, stacklevel=3)

    @staticmethod
    def _stop(text):
        raise errors.Aborted(text)


def _agree(before, now, tolerance):
    before, now = torch.as_tensor(before).double(), torch.as_tensor(now).double()
    return before.shape == now.shape and torch.allclose(before, now, rtol=tolerance, atol=0, equal_nan=True)


def _shown(value):
    if isinstance(value, torch.Tensor) and value.numel() != 1:
        return f"a tensor of {tuple(value.shape)}"
    number = float(value) if value is not None else math.nan
    return f"{number:g}"


def _random_state(model):
    device = next((p.device for p in model.parameters()), torch.device("cpu"))
    return torch.get_rng_state(), device, torch.cuda.get_rng_state(device) if device.type == "cuda" else None


def _set_random_state(state):
    host, device, gpu = state
    torch.set_rng_state(host)
    if gpu is not None:
        torch.cuda.set_rng_state(gpu, device)
