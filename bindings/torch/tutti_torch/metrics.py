"""What a step wants to log, summed over the ranks without holding it up.

    bus = tutti_torch.metrics.Bus()
    bus.add("loss", loss.item() / dist.get_world_size())
    bus.publish(step)
    for line in bus:                       # those that have come: mostly the step before
        print(line.step, line.sums["loss"])
"""

import typing

from . import _C, _backend


class Metrics(typing.NamedTuple):
    step: int
    sums: dict  # by name, in the order in which they were added


class Bus:
    """Made by all ranks of `group` together. All scalars of a step travel as one vector, on a group of their own.

    With asynchronous=False publish waits for them; the values have the same bits.
    """

    def __init__(self, group=None, asynchronous=True):
        self._bus = _C.MetricsBus(_backend(group), asynchronous)

    def add(self, name, value):
        """A number, or a tensor of one. All ranks add the same names in the same order; twice the same: they add up."""
        self._bus.add(name, float(value))

    def publish(self, step):
        """Collective. Sends what was added; waits only where the step before the last is still on its way."""
        self._bus.publish(step)

    def take(self, wait=False):
        """The oldest that was published and not taken, as Metrics, when it has come, or after waiting for it; else None."""
        taken = self._bus.take(wait)
        return None if taken is None else Metrics(*taken)

    def __iter__(self):
        """Those that have come."""
        while (line := self.take()) is not None:
            yield line
