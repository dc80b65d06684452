"""What torch's profiler shows of operations."""
import pytest
import torch
import torch.distributed as dist

from bodies import every_rank


def events_of(profile, name):
    return [event for event in profile.function_events if event.name == name]


CALLS = {
    "all_reduce": lambda me: dist.all_reduce(torch.ones(3, 4)),
    "broadcast": lambda me: dist.broadcast(torch.ones(3, 4), 0),
    "reduce": lambda me: dist.reduce(torch.ones(3, 4), 0),
    "all_gather": lambda me: dist.all_gather([torch.ones(3, 4) for _ in range(me.size)],
                                             torch.ones(3, 4)),
}


@every_rank(2)
@pytest.mark.parametrize("name", CALLS)
def test_an_operation_is_an_event_with_shapes(me, name):
    with torch.autograd.profiler.profile(record_shapes=True) as profile:
        CALLS[name](me)
    event, = events_of(profile, f"{me.backend}:{name}")
    assert event.is_async and event.count == 1
    assert event.input_shapes == [[3, 4]]


@every_rank(2)
def test_messages_are_events(me):
    with torch.autograd.profiler.profile(record_shapes=True) as profile:
        if me.rank == 0:
            dist.send(torch.ones(5), dst=1)
        else:
            dist.recv(torch.zeros(5), src=0)
    event, = events_of(profile, f"{me.backend}:{'send' if me.rank == 0 else 'recv'}")
    assert event.input_shapes == [[5]]


@every_rank(2)
def test_an_operation_that_runs_beside_ends_with_its_wait(me):
    with torch.autograd.profiler.profile() as profile:
        work = dist.all_reduce(torch.ones(1000), async_op=True)
        work.wait()
    assert len(events_of(profile, f"{me.backend}:all_reduce")) == 1
