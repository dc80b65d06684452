"""Python objects, which ride on the collectives of tensors."""
import torch
import torch.distributed as dist

from bodies import every_rank


def something(rank):
    return {"rank": rank, "text": "x" * (rank * 50), "tensor": torch.arange(rank + 1), "nested": [None, (1, 2)]}


def same(left, right):
    return left.keys() == right.keys() and torch.equal(left["tensor"], right["tensor"]) and all(
        left[key] == right[key] for key in left if key != "tensor")


@every_rank(1, 2, 3)
def test_all_gather_object(me):
    got = [None] * me.size
    dist.all_gather_object(got, something(me.rank))
    assert all(same(got[rank], something(rank)) for rank in range(me.size))


@every_rank(1, 2, 3)
def test_broadcast_object_list(me):
    root = me.size - 1
    things = [something(5), "text", 42] if me.rank == root else [None, None, None]
    dist.broadcast_object_list(things, src=root)
    assert same(things[0], something(5)) and things[1:] == ["text", 42]


@every_rank(1, 2, 3)
def test_gather_object(me):
    got = [None] * me.size if me.rank == 0 else None
    dist.gather_object(something(me.rank), got, dst=0)
    if me.rank == 0:
        assert all(same(got[rank], something(rank)) for rank in range(me.size))


@every_rank(1, 2, 3)
def test_scatter_object_list(me):
    got = [None]
    dist.scatter_object_list(got, [something(rank) for rank in range(me.size)], src=0)
    assert same(got[0], something(me.rank))


@every_rank(3)
def test_objects_in_a_group(me):
    group = dist.new_group([0, 2])
    if me.rank in (0, 2):
        got = [None, None]
        dist.all_gather_object(got, ("from", me.rank), group=group)
        assert got == [("from", 0), ("from", 2)]
    dist.barrier()
