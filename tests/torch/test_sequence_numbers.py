"""The number of the next collective, which debugging tools compare between ranks."""
import pytest
import torch
import torch.distributed as dist

from bodies import BACKEND, TORCH, every_rank, tutti_only


def number(group=None):
    """torch 2 asks its own backends alone; of others the backend itself tells."""
    group = group or dist.distributed_c10d._get_default_group()
    if TORCH >= (2, 0) and BACKEND == "tutti":
        group = group._get_backend(torch.device("cpu"))
        if not hasattr(group, "_get_sequence_number_for_group"):
            pytest.skip("this torch does not let one ask a backend")
    return group._get_sequence_number_for_group()


@every_rank(1, 2, 3)
def test_each_collective_counts_one_on_every_rank(me):
    before = number()
    for _ in range(5):
        dist.all_reduce(torch.ones(2))
    assert number() == before + 5
    got = [None] * me.size
    mine = number()
    dist.all_gather_object(got, mine)
    assert got == [mine] * me.size


@every_rank(2)
def test_groups_count_for_themselves(me):
    group = dist.new_group()
    world, before = number(), number(group)
    for _ in range(3):
        dist.all_reduce(torch.ones(2), group=group)
    assert number(group) == before + 3
    assert number() == world


@tutti_only  # gloo counts messages between two ranks too, and then the ranks differ
@every_rank(3)
def test_messages_between_two_ranks_do_not_disturb_the_count(me):
    before = number()
    if me.rank == 0:
        dist.send(torch.ones(1), dst=1)
    elif me.rank == 1:
        dist.recv(torch.zeros(1), src=0)
    assert number() == before
    dist.barrier()
