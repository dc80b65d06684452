"""`import tutti` on tensors of torch: by DLPack, by __cuda_array_interface__, and symmetric memory as tensors."""
import itertools
import os

import pytest
import torch
import torch.distributed as dist

from bodies import every_rank
from gpu import busy, expect, needs_gpu, ramp, ramps, total

pytestmark = needs_gpu

COUNT = 10_000
_turn = itertools.count()


class Shown:
    """A tensor that has nothing but __cuda_array_interface__, which names the current stream."""

    def __init__(self, tensor):
        self.tensor = tensor

    @property
    def __cuda_array_interface__(self):
        stream = torch.cuda.current_stream().cuda_stream
        return {**self.tensor.__cuda_array_interface__, "version": 3, "stream": stream or 1}


def plain_group(me):
    """A group of `import tutti`, of the same ranks."""
    import tutti
    try:
        create = tutti.Group.create
    except ImportError as missing:
        pytest.skip(str(missing))
    path = os.path.join(me.folder, f"arrays{next(_turn)}")
    return create(f"file:{path}", me.rank, me.size, timeout=60)


@every_rank(2, 4)
@pytest.mark.parametrize("library", ["dlpack", "interface"])
def test_every_collective_on_tensors(me, library):
    lend = Shown if library == "interface" else lambda tensor: tensor
    with plain_group(me) as group:
        x, out = ramp(me, COUNT * me.size), torch.zeros(COUNT * me.size, device=me.device)
        options = {"out": lend(out), "stream": torch.cuda.current_stream()}
        group.all_reduce(lend(x), **options)
        expect(out, total(me, COUNT * me.size))
        group.broadcast(lend(x), me.size - 1, **options)
        expect(out, ramp(me, COUNT * me.size, rank=me.size - 1))
        group.all_to_all(lend(x), **options)
        parts = [each.chunk(me.size)[me.rank] for each in ramps(me, COUNT * me.size)]
        expect(out, torch.cat(parts))
        part = torch.zeros(COUNT, device=me.device)
        group.reduce_scatter(lend(x), out=lend(part), stream=torch.cuda.current_stream())
        expect(part, total(me, COUNT * me.size).chunk(me.size)[me.rank])
        group.all_gather(lend(part), **options)
        expect(out, total(me, COUNT * me.size))
        work = group.isend(lend(part), me.next, stream=torch.cuda.current_stream())
        got = torch.zeros(COUNT, device=me.device)
        assert group.recv(lend(got), me.previous).bytes == COUNT * 4
        work.wait()
        expect(got, total(me, COUNT * me.size).chunk(me.size)[me.previous])


@every_rank(2)
def test_halves_and_mistakes(me):
    import tutti
    with plain_group(me) as group:
        x = ramp(me, 100, torch.bfloat16)
        group.all_reduce(x, out=x, stream=torch.cuda.current_stream())
        expect(x, total(me, 100, torch.bfloat16))
        with pytest.raises(tutti.InvalidArgument, match="contiguous"):
            group.all_reduce(torch.ones(3, 4, device=me.device).t(), out=torch.ones(12, device=me.device))
        with pytest.raises(tutti.InvalidArgument, match="out="):
            group.all_reduce(x)
        with pytest.raises(tutti.InvalidArgument, match="GPU"):
            group.all_reduce(x, out=torch.zeros(100, dtype=torch.bfloat16))
        assert group.health is None


@every_rank(2, 4)
@pytest.mark.parametrize("library", ["dlpack", "interface"])
def test_a_call_is_ordered_by_streams(me, library):
    """The tensor is written in one stream, the call is in another, and a third waits for it."""
    lend = Shown if library == "interface" else lambda tensor: tensor
    with plain_group(me) as group:
        x, values = torch.zeros(COUNT, device=me.device), ramp(me, COUNT)
        group.all_reduce(x, out=x)  # the first use meets the others
        torch.cuda.synchronize()
        writes, calls, reads = (torch.cuda.Stream() for _ in range(3))
        with torch.cuda.stream(writes):
            busy(0.1 * (1 + me.rank))
            x.copy_(values)
            work = group.all_reduce_async(lend(x), out=lend(x), stream=calls)
        assert not work.done()
        work.wait_on(reads)
        with torch.cuda.stream(reads):
            result = x + 0
            expect(result, total(me, COUNT))
        work.wait()
        with torch.cuda.stream(calls):  # a call that "blocks" returns, and the stream finds the result
            busy(0.1)
            x.copy_(values)
            group.all_reduce(x, out=x, stream=calls)
            expect(x, total(me, COUNT))


@every_rank(2, 4)
def test_symmetric_memory_as_tensors(me):
    with plain_group(me) as group:
        array = group.empty((3, 1000), "f4", device="cuda")
        by_dlpack = torch.from_dlpack(array)
        by_interface = torch.as_tensor(array, device=me.device)
        for tensor in (by_dlpack, by_interface):
            assert tensor.data_ptr() == array.address and tensor.shape == (3, 1000)
            assert tensor.device == me.device and tensor.dtype == torch.float32
            expect(tensor, torch.zeros(3, 1000))
            del tensor
        del array
        by_dlpack[1].copy_(ramp(me, 1000))
        group.all_reduce(by_dlpack[1], out=by_dlpack[1], stream=torch.cuda.current_stream())
        expect(by_interface[1], total(me, 1000))
        expect(by_interface[2], torch.zeros(1000))
        torch.cuda.synchronize()
        dist.barrier()
