"""Ranks along named axes, and tensors that go from one layout to another by the cheapest chain of steps.

    mesh = tutti_torch.Mesh(dp=2, tp=2)                             # collective
    part = tutti_torch.redistribute(part, mesh, ["shard(0)", "replicate"], ["replicate", "shard(1)"])

Along each axis a tensor is "shard(d)", "replicate" or "partial(op)"; torch's own placements (Shard(0), Replicate(),
Partial()) are taken, too. What torch's DTensor does axis by axis, on CPU groups by gathering and slicing, is planned here as
a whole, by what this machine's links cost: docs/algorithms/redistribution.md.
"""

import weakref

import torch
import torch.distributed as dist

from tutti.errors import InvalidArgument

from . import _C, _backend

_open = weakref.WeakSet()


def _end():
    """The process is about to end: groups are left in good order."""
    for each in list(_open):
        each.close()


def shard(dimension):
    return f"shard({dimension})"


def replicate():
    return "replicate"


def partial(op="sum"):
    return f"partial({op})"


def _word(placement):
    """A placement as a word; torch's are known by what they can be asked."""
    if isinstance(placement, str):
        return placement
    if hasattr(placement, "is_shard"):
        if placement.is_shard():
            return shard(placement.dim)
        return partial(str(placement.reduce_op)) if placement.is_partial() else replicate()
    raise InvalidArgument(f"{placement!r} is no placement: 'shard(0)', 'replicate', 'partial(sum)', or one of torch's")


def _words(placements):
    return placements if isinstance(placements, str) else ",".join(_word(each) for each in placements)


class Mesh:
    """The ranks of a process group as a box with named axes, the chattiest inside of a host.

    Made by all ranks of the group together: Mesh(dp=2, tp=4), or Mesh({"dp": 2, "tp": 4}, group). From then on errors
    name ranks with their coordinates. `axes` is {name: size}, `coordinates` is {name: number} of this rank.
    """

    def __init__(self, axes=None, group=None, **more):
        self.axes = {**dict(axes or {}), **more}
        self._group = group
        self._along = {}
        self._it = _C.TensorMesh(_backend(group), [(str(name), int(size)) for name, size in self.axes.items()])
        self.coordinates = self.coordinates_of(dist.get_rank(group))
        _open.add(self)

    def coordinates_of(self, rank):
        """Of a rank of the group: {name: number}."""
        return dict(zip(self.axes, self._it.coordinates(rank)))

    def rank_at(self, **coordinates):
        """The rank of the group at these coordinates, one for each axis."""
        if set(coordinates) != set(self.axes):
            raise InvalidArgument(f"rank_at takes a number for each of {', '.join(self.axes)}")
        return self._it.rank_at([int(coordinates[name]) for name in self.axes])

    def along(self, *names):
        """The process group of the ranks that differ from this one in these axes only. All ranks of the mesh call
        it together, the first time."""
        unknown = [name for name in names if name not in self.axes]
        if unknown or not names:
            raise InvalidArgument(f"along takes some of the axes {', '.join(self.axes)}, not {', '.join(unknown)}")
        key = frozenset(names)
        if key not in self._along:
            self._along[key] = self._make_groups(key)
        return self._along[key]

    def _make_groups(self, names):
        members = {}
        for rank in range(dist.get_world_size(self._group)):
            at = self.coordinates_of(rank)
            others = tuple(number for name, number in at.items() if name not in names)
            members.setdefault(others, []).append((tuple(at.values()), rank))
        mine = tuple(number for name, number in self.coordinates.items() if name not in names)
        found = None
        for others in sorted(members):  # all ranks make all groups, in one order
            ranks = [_of_world(self._group, rank) for _, rank in sorted(members[others])]
            made = dist.new_group(ranks)
            found = made if others == mine else found
        return found

    def whole_shape(self, tensor, placements):
        """The shape of the tensor of which every rank holds its part. Collective."""
        return torch.Size(self._it.whole_shape(tensor, _words(placements)))

    def explain(self, shape, dtype, from_, to):
        """The plan of a redistribution, step by step, with bytes and prices."""
        return self._it.explain(_words(from_), _words(to), list(shape), torch.empty(0, dtype=dtype))

    def describe(self):
        """Who stands where, and what stays inside of a host."""
        return self._it.describe()

    def close(self):
        """Leaves the mesh's groups."""
        self._it.close()


def _of_world(group, rank):
    if group is None:
        return rank
    return dist.distributed_c10d._get_global_rank(group, rank)


def redistribute(tensor, mesh, from_, to, shape=None):
    """What this rank holds of a tensor after it went from placements `from_` to placements `to` on the mesh.

    Collective. `tensor` is this rank's part, cut by torch's chunk rule; `shape` is that of the whole tensor (absent: found
    out by one small all_gather). Returns a new tensor. CUDA tensors go through CPU memory. Not differentiable.
    """
    if shape is None:
        shape = mesh.whole_shape(tensor, from_)
    return mesh._it.redistribute(tensor, _words(from_), _words(to), list(shape))
