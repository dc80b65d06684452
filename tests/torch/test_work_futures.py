"""Operations that run beside: Work, its future, and what hangs on that."""
import time
from datetime import timedelta

import pytest
import torch
import torch.distributed as dist

from bodies import every_rank, ramp, tutti_only


def expected(me, count):
    return sum(ramp(rank, count) for rank in range(me.size))


@every_rank(1, 2, 3)
def test_wait_returns_true_and_the_result_is_there(me):
    tensor = ramp(me.rank, 1000)
    work = dist.all_reduce(tensor, async_op=True)
    assert work.wait() is True
    assert work.is_completed()
    assert torch.equal(tensor, expected(me, 1000))


@every_rank(1, 2)
def test_wait_takes_a_timeout_that_is_long_enough(me):
    tensor = ramp(me.rank, 1000)
    work = dist.all_reduce(tensor, async_op=True)
    assert work.wait(timeout=timedelta(seconds=20)) is True
    assert torch.equal(tensor, expected(me, 1000))


@every_rank(2, 3)
def test_wait_may_be_called_twice(me):
    work = dist.all_reduce(torch.ones(3), async_op=True)
    assert work.wait() and work.wait()


@every_rank(2)
def test_completion_is_seen_without_waiting(me):
    tensor = ramp(me.rank, 1000)
    work = dist.all_reduce(tensor, async_op=True)
    deadline = time.monotonic() + 30
    while not work.is_completed():
        assert time.monotonic() < deadline
        time.sleep(0.001)
    work.wait()
    assert torch.equal(tensor, expected(me, 1000))


@every_rank(2)
def test_a_work_that_waits_for_a_peer_is_not_completed(me):
    if me.rank == 0:
        work = dist.irecv(torch.zeros(2), src=1)
        assert not work.is_completed()
        dist.send(torch.ones(1), dst=1, tag=1)
        work.wait()
        assert work.is_completed()
    else:
        dist.recv(torch.zeros(1), src=0, tag=1)
        dist.send(torch.ones(2), dst=0)


@every_rank(2, 3)
def test_many_works_finish_in_any_order_of_waiting(me):
    tensors = [ramp(me.rank, 100 + index) for index in range(30)]
    works = [dist.all_reduce(tensor, async_op=True) for tensor in tensors]
    for work in reversed(works):
        work.wait()
    for tensor in tensors:
        assert torch.equal(tensor, expected(me, tensor.numel()))


@tutti_only
@every_rank(1, 2, 3)
def test_every_collective_gives_a_work(me):
    parts = [torch.zeros(4) for _ in range(me.size)]
    at_root = parts if me.rank == 0 else None
    works = [dist.broadcast(torch.ones(4), 0, async_op=True),
             dist.all_reduce(torch.ones(4), async_op=True),
             dist.reduce(torch.ones(4), 0, async_op=True),
             dist.all_gather(parts, torch.ones(4), async_op=True),
             dist.gather(torch.ones(4), at_root, 0, async_op=True),
             dist.scatter(torch.ones(4), at_root, 0, async_op=True),
             dist.reduce_scatter(torch.ones(4), [torch.ones(4)] * me.size, async_op=True),
             dist.all_to_all([torch.zeros(4) for _ in parts], parts, async_op=True),
             dist.all_to_all_single(torch.zeros(me.size), torch.zeros(me.size), async_op=True),
             dist.all_gather_into_tensor(torch.zeros(me.size), torch.ones(1), async_op=True),
             dist.reduce_scatter_tensor(torch.zeros(1), torch.ones(me.size), async_op=True),
             dist.barrier(async_op=True)]
    for work in works:
        assert work.wait()
        assert work.is_completed()


@every_rank(1, 2, 3)
def test_the_future_of_all_reduce_holds_the_tensor(me):
    tensor = ramp(me.rank, 10)
    future = dist.all_reduce(tensor, async_op=True).get_future()
    value = future.wait()
    value = value[0] if isinstance(value, (list, tuple)) else value
    assert value.data_ptr() == tensor.data_ptr()
    assert torch.equal(value, expected(me, 10))
    assert future.done()


@every_rank(2, 3)
def test_then_runs_after_completion_and_chains(me):
    tensor = ramp(me.rank, 10)
    future = dist.all_reduce(tensor, async_op=True).get_future()
    halved = future.then(lambda done: done.value()[0] / me.size).then(lambda done: done.value() + 1)
    assert torch.equal(halved.wait(), expected(me, 10) / me.size + 1)


@every_rank(2)
def test_then_on_a_finished_work_runs_at_once(me):
    work = dist.all_reduce(torch.ones(3), async_op=True)
    work.wait()
    seen = work.get_future().then(lambda done: float(done.value()[0][0]))
    assert seen.wait() == me.size


@every_rank(2, 3)
def test_a_callback_may_start_the_next_operation(me):
    first = torch.ones(5)
    second = torch.full((5,), 2.0)

    def start_next(done):
        return dist.all_reduce(second, async_op=True)

    works = dist.all_reduce(first, async_op=True).get_future().then(start_next)
    works.wait().wait()
    assert second[0].item() == 2 * me.size


@every_rank(2)
def test_an_exception_in_a_callback_reaches_the_one_who_waits(me):
    def fail(done):
        raise ValueError("on purpose")

    future = dist.all_reduce(torch.ones(3), async_op=True).get_future().then(fail)
    with pytest.raises(Exception, match="on purpose"):
        future.wait()
    dist.barrier()


@every_rank(2, 3)
def test_futures_can_be_collected(me):
    tensors = [ramp(me.rank, 10) for _ in range(5)]
    futures = [dist.all_reduce(tensor, async_op=True).get_future() for tensor in tensors]
    torch.futures.collect_all(futures).wait()
    assert all(torch.equal(tensor, expected(me, 10)) for tensor in tensors)


@tutti_only
@every_rank(2)
def test_futures_of_other_collectives_complete(me):
    parts = [torch.zeros(2) for _ in range(me.size)]
    futures = [dist.broadcast(torch.ones(2), 0, async_op=True).get_future(),
               dist.all_gather(parts, ramp(me.rank, 2), async_op=True).get_future(),
               dist.reduce_scatter(torch.zeros(2), parts, async_op=True).get_future(),
               dist.barrier(async_op=True).get_future()]
    for future in futures:
        future.wait()
    assert torch.equal(parts[1], ramp(1, 2))


@every_rank(2)
def test_tensors_may_be_dropped_before_completion(me):
    works = [dist.all_reduce(torch.ones(20_000), async_op=True) for _ in range(10)]
    for work in works:
        work.wait()


@every_rank(2)
def test_works_may_be_dropped_before_completion(me):
    kept = torch.ones(1000)
    dist.all_reduce(kept, async_op=True)
    dist.barrier()  # collectives of one group end in order
    assert kept[0].item() == me.size


@tutti_only
@every_rank(2)
def test_waiting_from_another_thread(me):
    import threading
    tensor = ramp(me.rank, 1000)
    work = dist.all_reduce(tensor, async_op=True)
    answers = []
    threads = [threading.Thread(target=lambda: answers.append(work.wait())) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30)
    assert answers == [True] * 3
    assert torch.equal(tensor, expected(me, 1000))
