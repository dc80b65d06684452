"""Collectives captured in CUDA graphs. Where ranks do not meet in kernels they cannot be, and say so."""
import pytest
import torch
import torch.distributed as dist

from bodies import every_rank
from gpu import expect, needs_gpu, ramp, total

pytestmark = needs_gpu


def capture(me, call):
    """A graph of the call; skips where that cannot be, after a look whether the group is still good."""
    import tutti_torch
    graph = torch.cuda.CUDAGraph()
    refused = None
    try:
        with torch.cuda.graph(graph):
            try:
                call()
            except tutti_torch.Unsupported as error:
                refused = str(error)
    except RuntimeError:  # an empty graph, or one that was given up
        if refused is None:
            raise
    if refused is None:
        return graph
    assert "graph" in refused or "captured" in refused, refused
    tensor = ramp(me, 100)
    dist.all_reduce(tensor)
    expect(tensor, total(me, 100))
    pytest.skip(refused)


@every_rank(2, 4)
def test_a_captured_all_reduce_is_replayed(me):
    tensor = torch.zeros(5000, device=me.device)
    dist.all_reduce(tensor)  # memory is mapped, kernels are loaded
    torch.cuda.synchronize()
    dist.barrier()

    def call():
        tensor.mul_(2)
        dist.all_reduce(tensor)
        tensor.add_(1)
    graph = capture(me, call)
    for turn in range(3):
        tensor.copy_(ramp(me, 5000) + turn)
        graph.replay()
        expect(tensor, 2 * (total(me, 5000) + me.size * turn) + 1)
    plain = ramp(me, 77)  # and between replays
    dist.all_reduce(plain)
    expect(plain, total(me, 77))
    tensor.copy_(ramp(me, 5000))
    graph.replay()
    expect(tensor, 2 * total(me, 5000) + 1)


@every_rank(2)
def test_handles_and_futures_while_a_stream_is_captured(me):
    first, second = torch.zeros(1000, device=me.device), torch.zeros(30, 20, device=me.device).t()
    for tensor in (first, second):
        dist.all_reduce(tensor)
    torch.cuda.synchronize()
    dist.barrier()

    def call():
        work = dist.all_reduce(first, async_op=True)
        work.wait()
        dist.all_reduce(second, async_op=True).get_future().wait()
        first.add_(1)
    graph = capture(me, call)
    for _ in range(2):
        first.copy_(ramp(me, 1000))
        second.copy_(ramp(me, 600).view(20, 30))
        graph.replay()
        expect(first, total(me, 1000) + 1)
        expect(second, total(me, 600).view(20, 30))
