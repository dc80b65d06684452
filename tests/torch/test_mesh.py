"""tutti_torch.Mesh and redistribute, beside slices of the whole tensor; and DTensor's own, where torch has it."""
import itertools

import pytest
import torch
import torch.distributed as dist

from bodies import every_rank, torch_at_least, tutti_only

PLACEMENTS = ["shard(0)", "shard(1)", "replicate", "partial(sum)"]


def mesh_of(**axes):
    import tutti_torch
    return tutti_torch.Mesh(**axes)


def whole_of(shape, dtype=torch.float64):
    return torch.arange(torch.Size(shape).numel(), dtype=dtype).reshape(shape)


def part_of(whole, mesh, placements):
    """What this rank holds, by torch.chunk; of a partial tensor the rank with coordinate 0 has it all."""
    for (name, size), placement in zip(mesh.axes.items(), placements):
        at = mesh.coordinates[name]
        if placement.startswith("shard"):
            dimension = int(placement[6:-1])
            chunks = whole.chunk(size, dimension)
            whole = chunks[at] if at < len(chunks) else whole.narrow(dimension, 0, 0)
        elif placement == "partial(sum)":
            whole = whole if at == 0 else torch.zeros_like(whole)
    return whole.contiguous()


@tutti_only
@every_rank(4)
def test_a_mesh_knows_who_stands_where(me):
    mesh = mesh_of(dp=2, tp=2)
    assert mesh.rank_at(**mesh.coordinates) == me.rank
    assert {mesh.rank_at(dp=a, tp=b) for a in range(2) for b in range(2)} == set(range(4))
    assert "mesh dp 2 x tp 2" in mesh.describe()
    group = mesh.along("dp")
    assert mesh.along("dp") is group and dist.get_world_size(group) == 2
    tensor = torch.tensor([float(me.rank)])
    dist.all_reduce(tensor, group=group)
    assert tensor.item() == sum(mesh.rank_at(**{**mesh.coordinates, "dp": a}) for a in range(2))
    both = mesh.along("tp", "dp")
    assert dist.get_world_size(both) == 4


@tutti_only
@every_rank(4)
@pytest.mark.parametrize("shape", [(8, 12), (5, 3)])
def test_redistribute_gives_what_slicing_the_whole_gives(me, shape):
    import tutti_torch
    mesh = mesh_of(dp=2, tp=2)
    whole = whole_of(shape)
    for from_ in itertools.product(PLACEMENTS, repeat=2):
        for to in itertools.product(PLACEMENTS[:3], repeat=2):
            given = part_of(whole, mesh, from_)
            assert mesh.whole_shape(given, from_) == whole.shape
            got = tutti_torch.redistribute(given, mesh, from_, to)
            assert torch.equal(got, part_of(whole, mesh, to)), (from_, to)


@tutti_only
@every_rank(3)
def test_redistribute_takes_any_type_and_tensors_that_do_not_lie_in_order(me):
    import tutti_torch
    mesh = mesh_of(rows=3)
    for dtype in (torch.bfloat16, torch.int8, torch.bool, torch.float32):
        whole = whole_of((7, 4), torch.float32).to(dtype)
        part = part_of(whole.t().contiguous(), mesh, ["shard(0)"]).t()  # of columns, as it lies
        assert me.rank == 2 or not part.is_contiguous()
        got = tutti_torch.redistribute(part, mesh, [tutti_torch.shard(1)], [tutti_torch.replicate()], shape=(7, 4))
        assert got.dtype == dtype and torch.equal(got, whole)


@tutti_only
@every_rank(2)
def test_mistakes_are_told_before_anything_moves(me):
    import tutti_torch
    with pytest.raises(tutti_torch.InvalidArgument, match="dp 3 has 3 ranks, and group 'world' has 2"):
        mesh_of(dp=3)
    mesh = mesh_of(dp=2)
    with pytest.raises(tutti_torch.InvalidArgument, match="no placement"):
        tutti_torch.redistribute(torch.zeros(4), mesh, ["whole"], ["replicate"], shape=(4,))
    with pytest.raises(tutti_torch.InvalidArgument, match="it has \\(2\\)"):
        tutti_torch.redistribute(torch.zeros(3), mesh, ["shard(0)"], ["replicate"], shape=(4,))
    with pytest.raises(tutti_torch.InvalidArgument, match="some of the axes dp, not tp"):
        mesh.along("tp")
    with pytest.raises(tutti_torch.InvalidArgument, match="is no placement"):
        tutti_torch.redistribute(torch.zeros(4), mesh, [3], ["replicate"])
    assert "all_gather" in mesh.explain((4,), torch.float32, ["shard(0)"], ["replicate"])
    dist.barrier()


# ---- torch's own

def dtensor_placements(words):
    from torch.distributed.tensor import Partial, Replicate, Shard
    return [Shard(int(word[6:-1])) if word.startswith("shard") else
            Partial("sum") if word.startswith("partial") else Replicate() for word in words]


@torch_at_least(2, 5)
@every_rank(4)
@pytest.mark.parametrize("shape", [(8, 12), (5, 3)])
def test_distributed_tensors_are_redistributed_on_groups_of_this_backend(me, shape):
    """DTensor's own chain of collectives, over a mesh of two dimensions, uneven shards included."""
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.tensor import DTensor
    torchs = init_device_mesh("cpu", (2, 2), mesh_dim_names=("dp", "tp"))
    whole = whole_of(shape)

    class Place:
        axes = {"dp": 2, "tp": 2}
        coordinates = dict(zip(("dp", "tp"), torchs.get_coordinate()))

    for from_ in itertools.product(PLACEMENTS, repeat=2):
        given = DTensor.from_local(part_of(whole, Place, from_), torchs, dtensor_placements(from_), run_check=False,
                                   shape=whole.shape, stride=whole.stride())
        for to in itertools.product(PLACEMENTS[:3], repeat=2):
            got = given.redistribute(torchs, dtensor_placements(to)).to_local()
            assert torch.equal(got, part_of(whole, Place, to)), (from_, to)


@tutti_only
@torch_at_least(2, 5)
@every_rank(4)
def test_redistribute_takes_torchs_placements_and_agrees_with_its_tensors(me):
    import tutti_torch
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.tensor import DTensor
    torchs = init_device_mesh("cpu", (2, 2), mesh_dim_names=("dp", "tp"))
    mesh = mesh_of(dp=2, tp=2)
    assert list(mesh.coordinates.values()) == torchs.get_coordinate()
    whole = whole_of((6, 10))
    for from_, to in [(("shard(0)", "replicate"), ("replicate", "shard(1)")),
                      (("partial(sum)", "shard(0)"), ("shard(0)", "shard(0)")),
                      (("shard(0)", "shard(1)"), ("shard(1)", "shard(0)"))]:
        given = part_of(whole, mesh, from_)
        theirs = DTensor.from_local(given, torchs, dtensor_placements(from_), run_check=False)
        ours = tutti_torch.redistribute(given, mesh, dtensor_placements(from_), dtensor_placements(to))
        assert torch.equal(ours, theirs.redistribute(torchs, dtensor_placements(to)).to_local())
