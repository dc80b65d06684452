"""What the bodies of this suite share: the device, values that tell ranks apart, and a GPU that is kept busy."""
import os
import time

import pytest
import torch

DEVICE = os.environ.get("TUTTI_TEST_DEVICE", "cuda")
ON_GPU = DEVICE == "cuda"

needs_gpu = pytest.mark.skipif(not ON_GPU, reason="is about streams, which the CPU has none of")


def why_not():
    """Why nothing of this can be run here; None: it can."""
    if not ON_GPU:
        return None
    if int(torch.__version__.split(".")[0]) < 2:
        return f"torch {torch.__version__} knows a backend for one device only"
    if not torch.cuda.is_available():
        return "there is no GPU that this torch can use"
    return None


def use_device(me):
    """A body: all ranks share the first GPU."""
    me.device = torch.device(DEVICE, 0) if ON_GPU else torch.device("cpu")
    if ON_GPU:
        torch.cuda.set_device(me.device)


def ramp(me, count, dtype=torch.float32, rank=None):
    """Values that tell ranks and places apart, small enough to be exact in every type."""
    rank = me.rank if rank is None else rank
    return (torch.arange(count, device=me.device) % 7 + rank + 1).to(dtype)


def ramps(me, count, dtype=torch.float32):
    """Every rank's."""
    return [ramp(me, count, dtype, rank) for rank in range(me.size)]


def total(me, count, dtype=torch.float32):
    """What a sum over the ranks gives."""
    return sum(ramps(me, count, dtype)).to(dtype)


def expect(found, wanted):
    """They are equal, or the message says where they are not. Looks at both when the current stream has come there."""
    found, wanted = found.detach().cpu(), wanted.detach().cpu()
    if found.shape != wanted.shape or found.dtype != wanted.dtype:
        raise AssertionError(f"{found.dtype} {tuple(found.shape)} is not {wanted.dtype} {tuple(wanted.shape)}")
    if torch.equal(found, wanted):
        return
    found, wanted = found.flatten(), wanted.flatten()
    places = (found != wanted).nonzero().flatten()
    raise AssertionError(f"{len(places)} of {found.numel()} differ, the first at {places[0].item()}: "
                         f"{found[places[0]].item()} is not {wanted[places[0]].item()}")


_cycles_a_second = None


def busy(seconds):
    """Keeps the current stream busy for about so long; returns at once."""
    global _cycles_a_second
    if _cycles_a_second is None:
        begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        torch.cuda._sleep(1_000_000)  # the first call loads the kernel
        begin.record()
        torch.cuda._sleep(20_000_000)
        end.record()
        end.synchronize()
        _cycles_a_second = 20_000_000 / (begin.elapsed_time(end) / 1000)
    torch.cuda._sleep(int(seconds * _cycles_a_second))


def eventually(condition, limit_s=10.0):
    deadline = time.monotonic() + limit_s
    while not condition():
        if time.monotonic() > deadline:
            return False
        time.sleep(0.001)
    return True


def timed(call):
    """Seconds that the host spends in it."""
    begin = time.perf_counter()
    call()
    return time.perf_counter() - begin
