"""Sub-groups, their ranks, their end, and beginning again."""
import os
import time

import pytest
import torch
import torch.distributed as dist
import tutti_torch

from bodies import every_rank, needs_torch_2, ramp, tutti_only


@every_rank(2, 3, 4)
def test_a_group_reduces_among_its_members(me):
    members = list(range(1, me.size))
    group = dist.new_group(members)
    tensor = ramp(me.rank, 10)
    if me.rank in members:
        assert dist.get_rank(group) == me.rank - 1
        assert dist.get_world_size(group) == len(members)
        dist.all_reduce(tensor, group=group)
        assert torch.equal(tensor, sum(ramp(rank, 10) for rank in members))
    else:
        assert dist.get_rank(group) == -1
    dist.barrier()


@every_rank(4)
def test_roots_are_global_ranks(me):
    group = dist.new_group([3, 1])
    if me.rank in (1, 3):
        tensor = torch.full((3,), float(me.rank))
        dist.broadcast(tensor, src=3, group=group)
        assert tensor[0].item() == 3
        tensor = torch.full((3,), float(me.rank))
        dist.reduce(tensor, dst=1, group=group)
        if me.rank == 1:
            assert tensor[0].item() == 4
        if me.rank == 3:
            dist.send(torch.full((1,), 9.0), dst=1, group=group)
        else:
            got = torch.zeros(1)
            assert dist.recv(got, src=3, group=group) == 3
            assert got.item() == 9
    dist.barrier()


@every_rank(4)
def test_disjoint_groups_work_side_by_side(me):
    groups = [dist.new_group([0, 1]), dist.new_group([2, 3])]
    mine = groups[me.rank // 2]
    for step in range(20):
        tensor = torch.full((50,), float(me.rank + step))
        dist.all_reduce(tensor, group=mine)
        base = 2 * (me.rank // 2)
        assert tensor[0].item() == 2 * step + base + base + 1
    dist.barrier()


@every_rank(3)
def test_overlapping_groups_interleave(me):
    groups = {ranks: dist.new_group(list(ranks)) for ranks in [(0, 1), (1, 2), (0, 2), (0, 1, 2)]}
    for ranks, group in groups.items():
        if me.rank in ranks:
            tensor = torch.full((7,), float(me.rank))
            dist.all_reduce(tensor, group=group)
            assert tensor[0].item() == sum(ranks)
    dist.barrier()


@every_rank(2, 3)
def test_operations_of_two_groups_may_be_in_flight_together(me):
    other = dist.new_group()
    first, second = ramp(me.rank, 5000), ramp(me.rank, 5000)
    works = [dist.all_reduce(first, async_op=True), dist.all_reduce(second, group=other, async_op=True)]
    for work in reversed(works):
        work.wait()
    expected = sum(ramp(rank, 5000) for rank in range(me.size))
    assert torch.equal(first, expected) and torch.equal(second, expected)


@every_rank(2, 3)
def test_a_group_of_one(me):
    groups = [dist.new_group([rank]) for rank in range(me.size)]
    tensor = ramp(me.rank, 10)
    dist.all_reduce(tensor, group=groups[me.rank])
    dist.broadcast(tensor, src=me.rank, group=groups[me.rank])
    dist.barrier(groups[me.rank])
    assert torch.equal(tensor, ramp(me.rank, 10))
    dist.barrier()


@every_rank(2, 4)
def test_a_destroyed_group_leaves_the_others_intact(me):
    for _ in range(3):
        group = dist.new_group()
        tensor = torch.ones(3)
        dist.all_reduce(tensor, group=group)
        assert tensor[0].item() == me.size
        dist.destroy_process_group(group)
    tensor = torch.ones(3)
    dist.all_reduce(tensor)
    assert tensor[0].item() == me.size


@tutti_only
@every_rank(2, 3)
def test_groups_share_the_links_of_the_world(me):
    before = len(os.listdir("/proc/self/fd"))
    groups = [dist.new_group(ranks) for ranks in ([0, 1], None) for _ in range(10)]
    for group in groups:
        if dist.get_rank(group) >= 0:
            tensor = torch.ones(3)
            dist.all_reduce(tensor, group=group)
            assert tensor[0].item() == dist.get_world_size(group)
    assert len(os.listdir("/proc/self/fd")) == before
    dist.barrier()


def group_with_one_who_is_gone(me):
    dist.init_process_group(me.backend, init_method=f"file://{me.folder}/store", rank=me.rank,
                            world_size=me.size)
    dist.barrier()
    if me.rank == 1:
        dist.destroy_process_group()
        return 0.0
    began = time.monotonic()
    with pytest.raises(tutti_torch.PeerLost, match="rank 1 .*has left"):
        dist.new_group([0, 1])
    return time.monotonic() - began


@tutti_only
def test_a_group_with_a_rank_that_has_ended_fails_at_once(lone_ranks):
    assert max(lone_ranks(2).run(group_with_one_who_is_gone)) < 20


def group_after_a_failed_world(me):
    dist.init_process_group(me.backend, init_method=f"file://{me.folder}/store", rank=me.rank,
                            world_size=me.size)
    with pytest.raises(tutti_torch.Mismatch):
        dist.all_reduce(torch.ones(me.rank + 1))
    tensor = torch.ones(3)
    dist.all_reduce(tensor, group=dist.new_group())
    return tensor[0].item()


@tutti_only
def test_those_who_are_there_make_a_group_after_the_world_has_failed(lone_ranks):
    assert lone_ranks(3).run(group_after_a_failed_world) == [3.0] * 3


@needs_torch_2  # before, it wanted CUDA
@every_rank(4)
def test_new_subgroups_by_enumeration(me):
    mine, groups = dist.new_subgroups_by_enumeration([[0, 2], [1, 3]])
    assert len(groups) == 2
    tensor = torch.full((1,), float(me.rank))
    dist.all_reduce(tensor, group=mine)
    assert tensor.item() == (2 if me.rank % 2 == 0 else 4)
    dist.barrier()


def init_and_destroy(me, rounds):
    """Each round meets in a file of its own, does something, and goes."""
    totals = []
    for number in range(rounds):
        dist.init_process_group(me.backend, init_method=f"file://{me.folder}/store_{number}",
                                rank=me.rank, world_size=me.size)
        tensor = torch.full((10,), float(me.rank + number))
        dist.all_reduce(tensor)
        totals.append(tensor[0].item())
        dist.destroy_process_group()
        assert not dist.is_initialized()
    return totals


def test_init_again_in_one_process(lone_ranks):
    assert lone_ranks(2).run(init_and_destroy, {"rounds": 4}) == [[1.0, 3.0, 5.0, 7.0]] * 2


def meet_again_in_one_store(me):
    """As a program does that destroys its world and makes another at the same address."""
    from datetime import timedelta
    store = dist.TCPStore("127.0.0.1", me.port, me.size, me.rank == 0, timedelta(seconds=30)) \
        if hasattr(me, "port") else dist.FileStore(f"{me.folder}/one_store", me.size)
    totals = []
    for number in range(3):
        dist.init_process_group(me.backend, store=dist.PrefixStore(f"round {number}", store),
                                rank=me.rank, world_size=me.size)
        tensor = torch.full((10,), float(me.rank + number))
        dist.all_reduce(tensor)
        totals.append(tensor[0].item())
        dist.barrier()
        dist.destroy_process_group()
    return totals


def test_init_again_in_one_store(lone_ranks):
    assert lone_ranks(2).run(meet_again_in_one_store) == [[1.0, 3.0, 5.0]] * 2


@tutti_only
@every_rank(2)
def test_a_group_of_another_backend_lives_beside(me):
    gloo = dist.new_group(backend="gloo")
    left, right = torch.ones(5), torch.ones(5)
    dist.all_reduce(left, group=gloo)
    dist.all_reduce(right)
    assert torch.equal(left, right)


def alone(me):
    store = dist.HashStore()
    dist.init_process_group(me.backend, store=store, rank=0, world_size=1)
    tensor = torch.ones(3)
    dist.all_reduce(tensor)
    dist.barrier()
    dist.destroy_process_group()
    return tensor.tolist()


def test_a_world_of_one_over_a_hash_store(lone_ranks):
    assert lone_ranks(1).run(alone) == [[1.0, 1.0, 1.0]]
