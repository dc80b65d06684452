"""What goes wrong ends in a typed exception on every rank, in bounded time; also with a GPU in it."""
import time
from datetime import timedelta

import torch
import torch.distributed as dist

from gpu import expect, ramp

LIMIT_S = 15.0  # from the cause to the last rank's exception


def settle(device):
    if device.type == "cuda":
        torch.cuda.synchronize()


def until_it_fails(me, call):
    """(the exception's name, its message, seconds), of a call that is made again and again."""
    begin = time.monotonic()
    try:
        while time.monotonic() - begin < LIMIT_S:
            call()
            settle(me.device)
    except RuntimeError as error:
        return type(error).__name__, str(error), time.monotonic() - begin
    raise AssertionError(f"nothing was raised in {LIMIT_S} s")


def meet(me):
    tensor = ramp(me, 1000)
    dist.all_reduce(tensor)
    settle(me.device)
    dist.barrier()


def go_on_alone(me, blocks):
    tensor = ramp(me, 100_000)
    return until_it_fails(me, lambda: dist.all_reduce(tensor, async_op=True).wait(
        timedelta(seconds=LIMIT_S)) if blocks else dist.all_reduce(tensor))


def go_on_without_the_lost(me):
    """The survivors of a death make a smaller group, and use the GPU in it."""
    import tutti_torch
    tutti_torch.shrink(timeout=LIMIT_S)
    rank, size = dist.get_rank(), dist.get_world_size()
    tensor = torch.full((1000,), float(rank + 1), device=me.device)
    dist.all_reduce(tensor)
    expect(tensor, torch.full((1000,), size * (size + 1) / 2))
    return size


def expect_loss(answers, rank):
    for survivor, (kind, answer) in answers.items():
        assert kind == "result", f"rank {survivor} {kind}: {answer}"
        assert answer[0] == "PeerLost" and f"rank {rank}" in answer[1], answer
        assert answer[2] < LIMIT_S, answer


def test_a_killed_rank_is_lost_to_streams_that_wait_for_it(lone_world):
    world = lone_world(3)
    world.run(meet)
    world.kill(1)
    world.start(go_on_alone, {"blocks": False}, only=[0, 2])
    expect_loss(world.collect(only=[0, 2]), 1)


def test_a_killed_rank_is_lost_and_the_others_go_on_without_it(lone_world):
    world = lone_world(3)
    world.run(meet)
    world.kill(2)  # not the first, in which the store lives
    world.start(go_on_alone, {"blocks": True}, only=[0, 1])
    expect_loss(world.collect(only=[0, 1]), 2)
    world.start(go_on_without_the_lost, only=[0, 1])
    assert world.collect(only=[0, 1]) == {0: ("result", 2), 1: ("result", 2)}


def differ(me):
    meet(me)
    tensor = ramp(me, 10 + me.rank)
    return until_it_fails(me, lambda: dist.all_reduce(tensor, async_op=True).wait(timedelta(seconds=LIMIT_S)))


def test_ranks_that_differ_hear_of_it(lone_world):
    for answer in lone_world(2).run(differ):
        assert answer[0] == "Mismatch" and "all_reduce" in answer[1], answer


def one_stays_away(me):
    meet(me)
    if me.rank == 1:
        time.sleep(4.5)
        return None
    tensor = ramp(me, 10)
    return until_it_fails(me, lambda: dist.all_reduce(tensor, async_op=True).wait(timedelta(seconds=LIMIT_S)))


def test_a_rank_that_does_not_come_is_named(lone_world):
    answer = lone_world(2, timeout_s=3.0).run(one_stays_away)[0]
    assert answer[0] == "TimedOut" and "rank 1" in answer[1], answer
    assert 2.0 < answer[2] < LIMIT_S, answer
