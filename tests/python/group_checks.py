"""Point to point, and groups made from groups."""
import numpy as np
from memory_checks import raises
from values import same

import tutti


def check_send_and_receive(group):
    if group.size == 1:
        return
    after, before = (group.rank + 1) % group.size, (group.rank - 1) % group.size
    sending = tutti.isend(np.full(3, group.rank), after, tag=5)
    into = np.empty(3, int)
    received = tutti.recv(into, before, tag=5)
    assert received == (before, 5, 24) and received.source == before
    same(into, np.full(3, before))
    assert sending.wait() is None
    if group.rank == 0:
        tutti.send(np.arange(4.0), 1)
    if group.rank == 1:
        wide = np.full((8, 2), -1.0)
        column = wide[:, 0]
        assert tutti.recv(column, 0).bytes == 32  # shorter than the array
        assert column.tolist() == [0, 1, 2, 3, -1, -1, -1, -1] and (wide[:, 1] == -1).all()


def check_receives_from_whoever_comes_first(group):
    if group.rank == 0:
        seen = set()
        for _ in range(group.size - 1):
            into = np.empty(1, "i4")
            received = tutti.irecv(into).wait()
            assert into[0] == received.source
            seen.add(received.source)
        assert seen == set(range(1, group.size))
    else:
        tutti.send(np.array([group.rank], "i4"), 0)
    tutti.barrier()


def check_an_exchange_cannot_deadlock(group):
    large = np.full(200_000, group.rank)
    others = [rank for rank in range(group.size) if rank != group.rank]
    into = {rank: np.empty_like(large) for rank in others}
    transfers = [tutti.Send(large, rank) for rank in others]
    transfers += [tutti.Recv(into[rank], rank) for rank in others]
    tutti.exchange(transfers)
    for rank in others:
        assert (into[rank] == rank).all()
        into[rank][:] = -1
    tutti.exchange_async(transfers).wait()
    assert all((into[rank] == rank).all() for rank in others)
    raises(tutti.InvalidArgument, lambda: tutti.exchange([large]), "tutti.Send")


def check_one_group_after_another(group):
    sums = group.duplicate("sums")
    after, before = (group.rank + 1) % group.size, (group.rank - 1) % group.size
    total = group.size * (group.size + 1) // 2
    for blocking in (False, True):
        come = np.zeros(1000, int)
        gate = np.empty(1)
        received = group.irecv(come, before, tag=31)
        opened = group.irecv(gate, group.rank, tag=32)
        works = [received, opened]
        if not blocking:
            work = sums.all_reduce_async(come, out=come, after=works)
            sent = sums.isend(come, after, tag=33, after=work)
            last = sums.irecv(np.empty(1000, int), before, tag=33, after=[])
            assert not work.done()  # the gate is shut
        group.send(np.ones(1), group.rank, tag=32)
        group.send(np.full(1000, group.rank + 1), after, tag=31)
        if blocking:
            sums.all_reduce(come, out=come, after=works)
        else:
            assert last.wait().source == before and sent.wait() is None
        assert (come == total).all()
    sums.barrier(after=received)
    raises(tutti.InvalidArgument, lambda: sums.barrier(after=[7]), "tutti.Work")
    sums.close()


def check_split(group):
    half = group.split(group.rank % 2, key=-group.rank, name="halves")
    members = [rank for rank in range(group.size) if rank % 2 == group.rank % 2][::-1]
    assert half.size == len(members) and members[half.rank] == group.rank
    assert half.name.startswith("halves")
    same(half.all_gather(group.rank), np.array(members))
    nobody = group.split(0 if group.rank == 0 else -1)
    assert (nobody is None) == (group.rank != 0)
    half.close()
    assert half.closed and "closed" in repr(half)
    raises(tutti.InvalidArgument, half.barrier, "closed")


# Whose sum depends on its parentheses.
def terms(group, rank=None):
    rank = group.rank if rank is None else rank
    return (np.arange(1, 33) / np.float32(3 + rank)).astype(np.float32)


def fold_as_tree(values):
    if len(values) == 1:
        return values[0]
    half = 1
    while 2 * half < len(values):
        half *= 2
    return fold_as_tree(values[:half]) + fold_as_tree(values[half:])


def check_subgroup_and_duplicate(group):
    ranks = list(range(group.size - 1, -1, -1))[:3]
    some = tutti.subgroup(ranks, tag=3)
    assert (some is None) == (group.rank not in ranks)
    if some is not None:
        same(some.all_gather(group.rank), np.array(ranks))
    with group.duplicate("beside", reduction_order="rank") as beside:
        assert beside.name == "beside" and beside.reduction_order == "rank"
        slow = tutti.all_reduce_async(np.ones(1000))
        same(beside.all_reduce(np.ones(2)), np.full(2, float(group.size)))
        same(slow.wait(), np.full(1000, float(group.size)))
    with group.duplicate(reduction_order="tree") as balanced:
        assert balanced.reduction_order == "tree"
        same(balanced.all_reduce(terms(group)), fold_as_tree([terms(group, r) for r in range(group.size)]))
    raises(tutti.InvalidArgument, lambda: group.duplicate(reduction_order="best"), "'tree'")
    assert beside.closed and not group.closed


def check_what_a_group_tells(group):
    assert tutti.group() is group and tutti.rank() == group.rank and tutti.size() == group.size
    assert group.reduction_order == "any" and group.health is None and tutti.is_initialized()
    assert f"rank {group.rank}" in group.describe() and f"rank {group.rank} of" in repr(group)
    prediction = group.predict("all_reduce", 1 << 20)
    assert prediction.algorithm and 0 <= prediction.symmetric_seconds <= prediction.seconds < 1
    group.label_ranks([f"seat {rank}" for rank in range(group.size)])
    assert f"seat {group.rank}; host" in group.describe()
    raises(tutti.InvalidArgument, lambda: group.label_ranks(["(" for _ in range(group.size)]))


def check_a_mesh_and_redistribution_on_it(group):
    rows = 2 if group.size % 2 == 0 else 1
    mesh = tutti.Mesh(dp=rows, tp=group.size // rows)
    assert mesh.rank_at(**mesh.coordinates) == group.rank and "mesh dp" in mesh.describe()
    assert mesh.along("tp").size == group.size // rows and mesh.along("tp") is mesh.along("tp")
    whole = np.arange(5 * 7, dtype="f4").reshape(5, 7)

    def part(axis, dimension):
        """By the chunk rule, not as numpy splits."""
        size, at = mesh.axes[axis], mesh.coordinates[axis]
        longest = -(-whole.shape[dimension] // size)
        return np.take(whole, range(longest * at, min(longest * (at + 1), whole.shape[dimension])), dimension)

    got = mesh.redistribute(part("dp", 0), ["shard(0)", "replicate"], "replicate,shard(1)", whole.shape)
    same(got, part("tp", 1))
    total = mesh.redistribute(whole, ["partial(sum)", "replicate"], ["replicate", "replicate"], whole.shape)
    same(total, rows * whole)
    assert "f32" in mesh.explain(whole.shape, "f4", ["shard(0)", "shard(0)"], ["replicate", "replicate"])
    raises(tutti.InvalidArgument, lambda: mesh.redistribute(whole[:1], ["replicate"] * 2, ["shard(0)"] * 2, whole.shape))
    raises(tutti.InvalidArgument, lambda: tutti.Mesh(dp=group.size + 1))
    raises(tutti.Unsupported, lambda: mesh.redistribute(whole * 1j, ["replicate"] * 2, ["replicate"] * 2, whole.shape))
