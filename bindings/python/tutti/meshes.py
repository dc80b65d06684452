"""Ranks along named axes, and arrays that go from one layout to another by the cheapest chain of steps."""

import numpy as np

from . import _tutti, arrays, default
from .errors import InvalidArgument, Unsupported
from .groups import Group


def _words(placements):
    return placements if isinstance(placements, str) else ",".join(placements)


class Mesh:
    """The ranks of a group as a box with named axes, the chattiest inside of a host: Mesh(dp=2, tp=4).

    Made by all ranks of the group together (without one: of the default group). From then on errors name
    ranks with their coordinates. `axes` is {name: size}, `coordinates` is {name: number} of this rank.
    """

    def __init__(self, group=None, **axes):
        group = default.group() if group is None else group
        self.axes = {name: int(size) for name, size in axes.items()}
        self._it = _tutti.Mesh(group._group, list(self.axes.items()))
        self._groups = {}
        self.coordinates = self.coordinates_of(group.rank)

    def coordinates_of(self, rank):
        """Of a rank of the group: {name: number}."""
        return dict(zip(self.axes, self._it.coordinates(rank)))

    def rank_at(self, **coordinates):
        """The rank of the group at these coordinates, one for each axis."""
        if set(coordinates) != set(self.axes):
            raise InvalidArgument(f"rank_at takes a number for each of {', '.join(self.axes)}")
        return self._it.rank_at([int(coordinates[name]) for name in self.axes])

    def along(self, *names):
        """The Group of the ranks that differ from this one in these axes only. Several axes are met
        by those ranks together, the first time."""
        key = frozenset(names)
        if key not in self._groups:
            self._groups[key] = Group(self._it.along(list(names)))
        return self._groups[key]

    def redistribute(self, x, from_, to, shape):
        """What this rank holds of an array after it went from placements `from_` to placements `to`.

        Collective. `x` is this rank's part of an array of `shape`; along each axis it is "shard(d)"
        (parts of ⌈length / ranks⌉, later ranks have less or nothing), "replicate" or "partial(op)".
        """
        array, kind, _ = arrays.read(x)
        if not isinstance(array, np.ndarray) or kind.parts != 1 or kind.dtype is None:
            raise Unsupported("redistribute takes arrays of numbers in CPU memory")
        words = (_words(from_), _words(to), [int(length) for length in shape], kind.code)
        out = np.empty(self._it.own_shape(*words), kind.dtype)
        self._it.redistribute(array, out, *words)
        return out

    def explain(self, shape, dtype, from_, to):
        """The plan of a redistribution, step by step, with bytes and prices."""
        kind = arrays.kind_of(np.dtype(dtype))
        return self._it.explain(_words(from_), _words(to), [int(length) for length in shape], kind.code)

    def describe(self):
        """Who stands where, and what stays inside of a host."""
        return self._it.describe()
