"""A barrier that names who is missing; on the group's object and as tutti_torch.monitored_barrier."""
import time
from datetime import timedelta

import pytest
import torch
import torch.distributed as dist

from bodies import BACKEND, every_rank, tutti_only


def monitored_barrier(**options):
    if BACKEND == "tutti":
        import tutti_torch
        return tutti_torch.monitored_barrier(**options)
    return dist.monitored_barrier(**options)


@every_rank(1, 2, 3)
def test_everybody_comes(me):
    for _ in range(3):
        monitored_barrier(timeout=timedelta(seconds=20))
    monitored_barrier(timeout=timedelta(seconds=20), wait_all_ranks=True)
    monitored_barrier()
    tensor = torch.ones(1)
    dist.all_reduce(tensor)
    assert tensor.item() == me.size


@every_rank(2)
def test_the_group_object_has_one_too(me):
    group = dist.distributed_c10d._get_default_group()
    group.monitored_barrier(timedelta(seconds=20), True)
    group.monitored_barrier(timeout=timedelta(seconds=20))


@every_rank(3)
def test_in_a_group(me):
    group = dist.new_group([0, 2])
    if me.rank in (0, 2):
        monitored_barrier(group=group, timeout=timedelta(seconds=20))
    dist.barrier()


def barrier_without(me, missing, wait_all_ranks):
    if me.rank in missing:
        return None
    begin = time.monotonic()
    with pytest.raises(RuntimeError) as caught:
        monitored_barrier(timeout=timedelta(seconds=1), wait_all_ranks=wait_all_ranks)
    return time.monotonic() - begin, str(caught.value)


@pytest.mark.parametrize("missing", [(1,), (1, 2)])
def test_rank_0_names_who_is_missing(lone_world, missing):
    world = lone_world(4)
    answers = world.run(barrier_without, {"missing": missing, "wait_all_ranks": True})
    took, message = answers[0]
    assert took < 10
    for rank in missing:
        assert str(rank) in message
    assert "rank" in message.lower()
    assert answers[3] is not None  # and the others fail too


@tutti_only
def test_every_rank_that_waited_names_the_missing_one(lone_world):
    answers = lone_world(3).run(barrier_without, {"missing": (1,), "wait_all_ranks": False})
    assert all("rank 1" in answers[rank][1].lower() for rank in (0, 2)), answers
