"""Futures of operations on CUDA tensors: complete from the beginning, ordered by streams."""
import torch
import torch.distributed as dist

from bodies import every_rank
from gpu import busy, expect, needs_gpu, ramp, timed, total

pytestmark = needs_gpu


def under_way(me, count, busy_s=0.1):
    """(tensor, work) behind a busy stream."""
    tensor, values = torch.zeros(count, device=me.device), ramp(me, count)
    dist.all_reduce(tensor)
    torch.cuda.synchronize()
    busy(busy_s)
    tensor.copy_(values)
    return tensor, dist.all_reduce(tensor, async_op=True)


@every_rank(2, 4)
def test_a_future_is_done_at_once_and_its_wait_orders_the_stream(me):
    tensor, work = under_way(me, 1000)
    future = work.get_future()
    assert future.done()
    took = timed(future.wait)
    assert took < 0.05, f"the host was held up for {took:.3f} s"
    expect(tensor, total(me, 1000))
    expect(future.value()[0], total(me, 1000))


@every_rank(2, 4)
def test_what_is_chained_runs_behind_the_operation(me):
    _, work = under_way(me, 1000)
    doubled = work.get_future().then(lambda done: done.value()[0] * 2)
    more = doubled.then(lambda done: done.value() + 1)
    expect(more.wait(), total(me, 1000) * 2 + 1)


@every_rank(2, 4)
def test_a_chained_function_may_start_collectives(me):
    """They come in the program's order, on the same group."""
    futures = []
    for count in (10, 1000, 100):
        _, work = under_way(me, count, 0.01)

        def again(done):
            tensor = done.value()[0].clone()
            dist.all_reduce(tensor)
            return tensor
        futures.append(work.get_future().then(again))
        dist.all_reduce(ramp(me, 5))
    for count, future in zip((10, 1000, 100), futures):
        expect(future.wait(), me.size * total(me, count))


@every_rank(2)
def test_futures_are_collected(me):
    works = [under_way(me, count, 0.01)[1] for count in (10, 20)]
    both = torch.futures.collect_all([work.get_future() for work in works]).wait()
    for count, future in zip((10, 20), both):
        expect(future.value()[0], total(me, count))


@every_rank(2)
def test_a_staged_result_is_in_the_future(me):
    tensor = ramp(me, 600).view(20, 30).t()
    future = dist.all_reduce(tensor, async_op=True).get_future()
    expect(future.wait()[0], total(me, 600).view(20, 30).t())


@every_rank(2)
def test_an_operation_and_its_future_outlive_the_handle(me):
    futures = []
    for count in range(1000, 1020):
        futures.append(dist.all_reduce(ramp(me, count), async_op=True).get_future())
    for count, future in zip(range(1000, 1020), futures):
        expect(future.wait()[0], total(me, count))
