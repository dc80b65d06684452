"""Functions chained to futures: they may start collectives and wait for them, whatever goes on beside."""
import threading
import time

import pytest
import torch
import torch.distributed as dist

from bodies import every_rank, tutti_only

pytestmark = tutti_only  # on other backends these are races


def summed(me, tensor):
    """What all_reduce makes of a tensor that is the same everywhere."""
    return tensor * me.size


def reduce_and_wait(tensor, group=None):
    return dist.all_reduce(tensor, group=group, async_op=True).get_future().wait()[0]


@every_rank(2, 4)
def test_waiting_in_a_chain_for_another_future_takes_no_timer(me):
    dist.barrier()
    began = time.monotonic()
    for _ in range(20):
        future = dist.all_reduce(torch.ones(4), async_op=True).get_future()
        chained = future.then(lambda done: reduce_and_wait(done.value()[0] + 1))
        assert torch.equal(chained.wait(), torch.full((4,), (me.size + 1.0) * me.size))
    assert time.monotonic() - began < 1.0  # 20 times 100 ms were it not so


@every_rank(2, 3)
def test_chains_meet_their_like_whatever_the_program_does_beside(me):
    """Every rank reaches its chains at other moments, between other collectives of the program."""
    chains, sums = [], []
    for index in range(8):
        tensor = torch.full((10 + index,), float(index))
        future = dist.all_reduce(tensor, async_op=True).get_future()
        chains.append(future.then(lambda done: reduce_and_wait(done.value()[0] + 1))
                      .then(lambda done: reduce_and_wait(done.value() * 2)))
        if index % me.size == me.rank:
            time.sleep(0.02)
        sums.append(torch.full((3 + index,), float(index)))
        dist.all_reduce(sums[-1])
    for index, chain in enumerate(chains):
        expected = summed(me, (summed(me, summed(me, torch.full((10 + index,), float(index))) + 1)) * 2)
        assert torch.equal(chain.wait(), expected)
        assert torch.equal(sums[index], summed(me, torch.full((3 + index,), float(index))))


@every_rank(2)
def test_a_function_that_is_chained_late_is_no_different(me):
    future = dist.all_reduce(torch.ones(4), async_op=True).get_future()
    if me.rank == 0:
        future.wait()  # torch would now run it at once, in this thread
    chained = future.then(lambda done: (threading.current_thread(), reduce_and_wait(torch.ones(7))))
    dist.all_reduce(torch.ones(5))
    thread, result = chained.wait()
    assert thread is not threading.current_thread()
    assert torch.equal(result, torch.full((7,), float(me.size)))


@every_rank(2, 3)
def test_chains_may_be_nested(me):
    def descend(depth):
        future = dist.all_reduce(torch.ones(depth + 1), async_op=True).get_future()
        if depth == 0:
            return future.wait()[0]
        return future.then(lambda _: descend(depth - 1)).wait()

    assert torch.equal(descend(4), torch.full((1,), float(me.size)))


@every_rank(2)
def test_a_function_may_wait_for_one_that_was_chained_after_it(me):
    later = []
    chained = threading.Event()

    def wait_for_later(_):
        chained.wait(30)
        return later[0].wait() + 1

    first = dist.all_reduce(torch.ones(4), async_op=True).get_future().then(wait_for_later)
    second = dist.all_reduce(torch.ones(4), async_op=True).get_future()
    later.append(second.then(lambda done: reduce_and_wait(done.value()[0])))
    chained.set()
    assert torch.equal(first.wait(), torch.full((4,), me.size ** 2 + 1.0))


@every_rank(3)
def test_a_chain_on_one_group_may_use_another(me):
    pair = me.pair = getattr(me, "pair", None) or dist.new_group([0, 2])
    own = dist.group.WORLD if me.rank == 1 else pair
    future = dist.all_reduce(torch.ones(4), group=own, async_op=True).get_future() if me.rank != 1 else None
    whole = dist.all_reduce(torch.ones(4), async_op=True).get_future()
    if future is not None:
        assert torch.equal(future.then(lambda done: done.value()[0] + 1).wait(), torch.full((4,), 3.0))
    chained = whole.then(lambda done: reduce_and_wait(torch.ones(2), pair) if me.rank != 1 else None)
    assert me.rank == 1 or torch.equal(chained.wait(), torch.full((2,), 2.0))


@every_rank(2)
def test_a_message_that_has_not_come_holds_no_other_chain_up(me):
    received = torch.zeros(1)
    if me.rank == 0:
        late = dist.irecv(received, src=1).get_future().then(lambda done: done.value()[0] + 1)
    chained = dist.all_reduce(torch.ones(4), async_op=True).get_future().then(
        lambda done: reduce_and_wait(torch.ones(2)))
    assert torch.equal(chained.wait(), torch.full((2,), float(me.size)))
    if me.rank == 1:
        dist.send(torch.ones(1), dst=0)
    else:
        assert late.wait().item() == 2.0


@every_rank(2)
def test_a_native_future_may_be_waited_for_in_a_callback_of_another(me):
    """collect_all is torch's own: what is chained to it runs where the last future is completed."""
    dist.barrier()
    began = time.monotonic()
    for _ in range(20):
        futures = [dist.all_reduce(torch.ones(4), async_op=True).get_future() for _ in range(4)]
        first, second = torch.futures.collect_all(futures[:2]), torch.futures.collect_all(futures[2:])
        first.then(lambda _: second.wait()).wait()
    assert time.monotonic() - began < 1.0


@every_rank(2)
def test_done_callbacks_run(me):
    ran = threading.Event()
    dist.all_reduce(torch.ones(4), async_op=True).get_future().add_done_callback(lambda done: ran.set())
    assert ran.wait(30)


def fail_in_a_chain(me):
    """Ranks differ in what their chained functions do; the group itself is none the worse."""
    future = dist.all_reduce(torch.ones(4), async_op=True).get_future()
    chained = future.then(lambda done: reduce_and_wait(torch.ones(4 + me.rank)))
    with pytest.raises(RuntimeError, match="on group 'world/then'.* x f32"):
        chained.wait()
    tensor = torch.ones(3)
    dist.all_reduce(tensor)
    assert tensor[0].item() == me.size


def test_a_mismatch_in_a_chain_says_so(lone_world):
    lone_world(2).run(fail_in_a_chain)


@every_rank(2)
def test_a_chain_gets_on_while_the_program_waits_in_a_collective_of_its_own(me):
    """Rank 0 is already in the collective to which rank 1 comes after its chain."""
    import tutti_torch
    group = dist.new_group()  # whose duplicate is not made yet
    future = dist.all_reduce(torch.ones(4), group=group, async_op=True).get_future()
    chained = future.then(lambda done: reduce_and_wait(torch.ones(2), group))
    if me.rank == 1:
        chained.wait()
    shared = tutti_torch.empty(8, group=group)
    assert torch.equal(chained.wait(), torch.full((2,), float(me.size))) and shared.numel() == 8
