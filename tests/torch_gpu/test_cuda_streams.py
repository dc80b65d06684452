"""What is ordered by streams, and what the host does meanwhile."""
import time
from datetime import timedelta

import pytest
import torch
import torch.distributed as dist

from bodies import every_rank
from gpu import busy, eventually, expect, needs_gpu, ramp, timed, total

pytestmark = needs_gpu

BUSY_S = 0.2        # how long a stream is kept busy
AT_ONCE_S = 0.05    # what a call that does not wait for it may take


def warm_up(me, *tensors):
    """The first use of memory meets the other ranks, and a kernel's first use loads it."""
    for tensor in tensors:
        dist.all_reduce(tensor)
        tensor.fill_(0).clone()
    busy(0.001)
    torch.cuda.synchronize()
    dist.barrier()


@every_rank(2, 4)
def test_an_operation_comes_behind_what_its_stream_has(me):
    tensor, values = torch.zeros(1000, device=me.device), ramp(me, 1000)
    warm_up(me, tensor)
    busy(BUSY_S * (1 + me.rank) / me.size)
    tensor.copy_(values)
    dist.all_reduce(tensor)
    expect(tensor, total(me, 1000))


@every_rank(2, 4)
def test_neither_starting_nor_waiting_holds_up_the_host(me):
    tensor, values = torch.zeros(100000, device=me.device), ramp(me, 100000)
    warm_up(me, tensor)
    busy(BUSY_S)
    tensor.copy_(values)
    took = {}
    work = []
    took["start"] = timed(lambda: work.append(dist.all_reduce(tensor, async_op=True)))
    took["wait"] = timed(work[0].wait)
    took["next"] = timed(lambda: tensor.add_(1))
    is_over = work[0].is_completed()
    took["all"] = timed(torch.cuda.synchronize)
    expect(tensor, total(me, 100000) + 1)
    assert took["start"] + took["wait"] < AT_ONCE_S, f"the host was held up: {took}"
    assert not is_over or took["all"] < AT_ONCE_S, f"over before its turn: {took}"
    assert eventually(work[0].is_completed) and work[0].is_success(), "it is never seen to be over"


@every_rank(2)
def test_waiting_with_a_timeout_blocks_the_host(me):
    tensor = ramp(me, 1000)
    warm_up(me, torch.zeros_like(tensor))
    busy(BUSY_S)
    work = dist.all_reduce(tensor, async_op=True)
    took = timed(lambda: work.wait(timedelta(seconds=20)))
    assert work.is_completed()
    assert took > BUSY_S / 4, f"it came back after {took:.3f} s"
    expect(tensor, total(me, 1000))


@every_rank(2)
def test_a_wait_that_times_out_leaves_the_operation_under_way(me):
    import tutti_torch
    tensor = ramp(me, 1000)
    warm_up(me, torch.zeros_like(tensor))
    busy(2 * BUSY_S)
    work = dist.all_reduce(tensor, async_op=True)
    with pytest.raises(tutti_torch.TimedOut):
        work.wait(timedelta(milliseconds=20))
    work.wait()
    expect(tensor, total(me, 1000))


@every_rank(2, 4)
def test_another_stream_finds_the_result_when_it_has_waited(me):
    tensor, copy = torch.zeros(1000, device=me.device), torch.zeros(1000, device=me.device)
    values = ramp(me, 1000)
    warm_up(me, tensor, copy)
    other = torch.cuda.Stream()
    other.wait_stream(torch.cuda.current_stream())
    busy(BUSY_S)
    tensor.copy_(values)
    work = dist.all_reduce(tensor, async_op=True)
    with torch.cuda.stream(other):
        work.wait()
        copy.copy_(tensor)
        expect(copy, total(me, 1000))
    torch.cuda.current_stream().wait_stream(other)


@every_rank(2, 4)
def test_operations_of_several_streams(me):
    streams = [torch.cuda.Stream() for _ in range(3)]
    torch.cuda.synchronize()
    tensors = []
    for turn in range(9):
        with torch.cuda.stream(streams[turn % 3]):
            if turn % 3 == me.rank % 3:
                busy(0.01)
            tensors.append(ramp(me, 1000 + turn))
            dist.all_reduce(tensors[-1], async_op=turn % 2 == 0)
    torch.cuda.synchronize()
    dist.barrier()
    for turn, tensor in enumerate(tensors):
        expect(tensor, total(me, 1000 + turn))


@every_rank(2)
def test_a_staged_result_is_ordered_too(me):
    tensor = torch.zeros(200, 300, device=me.device)
    values = ramp(me, 60000).view(200, 300)
    warm_up(me, torch.zeros_like(tensor))
    other = torch.cuda.Stream()
    other.wait_stream(torch.cuda.current_stream())
    busy(BUSY_S)
    tensor.copy_(values)
    work = dist.all_reduce(tensor.t(), async_op=True)
    with torch.cuda.stream(other):
        work.wait()
        expect(tensor, total(me, 60000).view(200, 300))
    work.wait()  # here it waits for what was copied there
    expect(tensor, total(me, 60000).view(200, 300))


@every_rank(2)
def test_a_staged_result_comes_without_anybody_waiting(me):
    tensor = ramp(me, 60000).view(200, 300)
    busy(BUSY_S / 4)
    dist.all_reduce(tensor.t(), async_op=True)
    torch.cuda.synchronize()
    expect(tensor, total(me, 60000).view(200, 300))


@every_rank(2, 4)
def test_memory_of_a_dropped_operation_is_not_used_again_too_early(me):
    count = 1 << 20
    for turn in range(8):
        given = torch.full((count,), float(me.rank + 1), device=me.device)
        busy(0.02)
        dist.all_reduce(given, async_op=True)
        del given
        fresh = [torch.full((count,), 7.0, device=me.device) for _ in range(3)]
        torch.cuda.synchronize()
        dist.barrier()
        for tensor in fresh:
            expect(tensor, torch.full((count,), 7.0))


@every_rank(2)
def test_a_barrier_waits_for_the_current_stream(me):
    warm_up(me, torch.zeros(10, device=me.device))
    tensor = ramp(me, 1000)
    busy(BUSY_S)
    dist.all_reduce(tensor, async_op=True)
    begin = time.monotonic()
    dist.barrier()
    took = time.monotonic() - begin
    assert torch.cuda.current_stream().query(), "the stream is still busy"
    assert took > BUSY_S / 4, f"it came back after {took:.3f} s"
    other = torch.cuda.Stream()  # which waits for nothing: the operation is over, too
    with torch.cuda.stream(other):
        expect(tensor, total(me, 1000))
