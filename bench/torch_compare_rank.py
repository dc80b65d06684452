#!/usr/bin/python3
"""One rank of bench/torch_compare.py, which starts it; the same program for all backends.

    RANK=0 WORLD_SIZE=1 bench/torch_compare_rank.py --backend gloo --folder /tmp/x --out /dev/stdout

Prints one JSON object: "all_reduce/4/plain" -> seconds, the median over iterations of the slowest rank. With
--device cuda all ranks use the first GPU, a time ends when its stream is through, and "…/plain/host" is what
the host spends in starting and waiting.
"""
import argparse
import gc
import json
import mmap
import os
import sys
import time

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

LINE = 8  # words of 8 bytes: each rank's flag has a cache line of its own
WARM_UPS = 5
SPINS = 500  # looks before the first yield, which gives up a slice of time; about 50 µs


class Meeting:
    """A barrier in shared memory, which is neither backend's: ranks start each call together."""

    def __init__(self, path, rank, size):
        with open(path, "r+b") as file:
            self.words = memoryview(mmap.mmap(file.fileno(), 8 * LINE * size)).cast("Q")
        self.own, self.flags = rank * LINE, [r * LINE for r in range(size)]
        self.count = 0

    def wait(self):
        self.count += 1
        words, count = self.words, self.count
        words[self.own] = count
        looks = 0
        for flag in self.flags:
            while words[flag] < count:
                looks += 1
                if looks > SPINS:  # somebody else needs the core: a rank too many, another program
                    os.sched_yield()


def allocate(kind, count, device):
    if kind == "symmetric":
        import tutti_torch
        return tutti_torch.empty(count, device=device)
    return torch.empty(count, device=device)


def make_call(collective, kind, count, size, device):
    """(what to time, its inputs, its outputs, what every element of part r of an output becomes, or of all of it)

    where rank r brings r + 1. What to time returns a Work if it is told so."""
    total = size * (size + 1) // 2
    if collective == "all_reduce":
        tensor = allocate(kind, count, device)
        return lambda later=False: dist.all_reduce(tensor, async_op=later), [tensor], [tensor], [total]
    share = max(1, count // size)
    whole, part = allocate(kind, share * size, device), allocate(kind, share, device)
    parts = list(whole.view(size, share).unbind(0))
    if collective == "all_gather":
        return lambda later=False: dist.all_gather(parts, part, async_op=later), [part], parts, range(1, size + 1)
    return lambda later=False: dist.reduce_scatter(part, parts, async_op=later), parts, [part], [total]


def gives_right_values(call, inputs, outputs, expected, rank):
    """One call on values that tell ranks apart, into memory that holds none of them."""
    for tensor in outputs:
        tensor.fill_(-1.0)
    for tensor in inputs:
        tensor.fill_(rank + 1.0)
    call()
    return all(bool((tensor == value).all()) for tensor, value in zip(outputs, expected))


def slowest(durations):
    """By iteration, over the ranks; collective."""
    table = torch.tensor(durations, dtype=torch.float64)
    dist.all_reduce(table, op=dist.ReduceOp.MAX)
    return table


def iterations_for(seconds, options):
    """As many as the budget allows; every rank takes rank 0's number."""
    count = torch.tensor([min(options.iterations, max(5, int(options.budget / max(seconds, 1e-7))))])
    dist.broadcast(count, 0)
    return int(count)


def timed(call, tensors, meeting, count, finish=lambda: None, after=lambda: None):
    """`finish` ends what is timed, `after` comes when the time is taken."""
    durations = []
    for _ in range(count):
        for tensor in tensors:
            tensor.fill_(1.0)  # as a step that has just written its gradients
        finish()
        after()
        meeting.wait()
        begin = time.perf_counter()
        call()
        finish()
        durations.append(time.perf_counter() - begin)
        after()
    return slowest(durations)


def time_call(options, meeting, collective, kind, nbytes):
    """Seconds until the result is there; and, on a GPU, in which the host starts and waits, else None."""
    rank, size = dist.get_rank(), dist.get_world_size()
    call, inputs, outputs, expected = make_call(collective, kind, max(1, nbytes // 4), size, options.device)
    if not gives_right_values(call, inputs, outputs, expected, rank):
        sys.exit(f"{collective} of {nbytes} bytes gave wrong values on rank {rank}")
    tensors = inputs if inputs[0] is outputs[0] else inputs + list(outputs)
    warm = timed(call, tensors, meeting, WARM_UPS, options.finish)
    count = iterations_for(warm.min().item(), options)
    whole = timed(call, tensors, meeting, count, options.finish).median().item()
    if options.device == "cpu":
        return whole, None
    host = timed(lambda: call(later=True).wait(), tensors, meeting, count, after=options.finish)
    return whole, host.median().item()


class Gpt(torch.nn.Module):
    """Layers of attention, as a language model has them; its input is numbers of words, its output a loss."""
    WORDS, LENGTH = 8192, 256

    def __init__(self, width, layers):
        super().__init__()
        self.embedding = torch.nn.Embedding(self.WORDS, width)
        layer = torch.nn.TransformerEncoderLayer(width, max(1, width // 64), 4 * width, dropout=0.0,
                                                 batch_first=True, norm_first=True)
        self.layers = torch.nn.TransformerEncoder(layer, layers, enable_nested_tensor=False)
        self.head = torch.nn.Linear(width, self.WORDS)
        mask = torch.nn.Transformer.generate_square_subsequent_mask(self.LENGTH)
        self.register_buffer("mask", mask, persistent=False)

    def forward(self, words):
        scores = self.head(self.layers(self.embedding(words), mask=self.mask, is_causal=True))
        return torch.nn.functional.cross_entropy(scores[:, :-1].flatten(0, 1), words[:, 1:].flatten())


def make_model(kind, width, layers, batch, device):
    """(a module, its input)"""
    if kind == "gpt":
        return Gpt(width, layers).to(device), torch.randint(0, Gpt.WORDS, (batch, Gpt.LENGTH), device=device)
    stack = torch.nn.Sequential(*[torch.nn.Linear(width, width) for _ in range(layers)])
    return stack.to(device), torch.randn(batch, width, device=device)


def time_steps(options, meeting, *model):
    """Forward, backward with its reductions, and update."""
    torch.manual_seed(1)
    module, given = make_model(*model, options.device)
    model = DistributedDataParallel(module, gradient_as_bucket_view=True, broadcast_buffers=False)
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-4)

    def step():
        with torch.autocast(options.device, torch.bfloat16, enabled=options.device == "cuda"):
            loss = model(given).sum()
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()

    warm = timed(step, [], meeting, WARM_UPS, options.finish)
    count = iterations_for(warm.min().item(), options)
    return timed(step, [], meeting, count, options.finish).median().item()


def run(options):
    rank, size = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
    is_tutti = options.backend != "gloo"
    if is_tutti:
        import tutti_torch
        if options.backend == "heap":  # tutti, with ordinary tensors in memory that all ranks have mapped
            tutti_torch.use_shared_heap()
    torch.set_num_threads(1)
    if options.device == "cuda":
        torch.cuda.set_device(0)
    options.finish = torch.cuda.synchronize if options.device == "cuda" else lambda: None
    gc.disable()
    dist.init_process_group("tutti" if is_tutti else "gloo", init_method=f"file://{options.folder}/store",
                            rank=rank, world_size=size)
    meeting = Meeting(f"{options.folder}/meeting", rank, size)
    kinds = ["plain", "symmetric"] if is_tutti else ["plain"]
    results = {}
    for collective in options.collectives:
        for nbytes in options.sizes:
            for kind in kinds:
                cell = f"{collective}/{nbytes}/{kind}"
                try:
                    results[cell], results[f"{cell}/host"] = time_call(options, meeting, collective, kind, nbytes)
                except RuntimeError as error:
                    if is_tutti or "support" not in str(error):
                        raise  # gloo of torch 1.13 has no reduce_scatter, and few of its collectives take CUDA tensors
    for name, model in options.models.items():
        results[f"ddp/{name}/plain"] = time_steps(options, meeting, *model)
    if rank == 0:
        with open(options.out, "w", encoding="utf-8") as file:
            json.dump(results, file)
    dist.barrier()
    os._exit(0)  # no tear-down: Gloo's may wait for a peer that is gone already


def main():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--backend", required=True)
    parser.add_argument("--folder", required=True, help="holds the store and the meeting place")
    parser.add_argument("--out", required=True, help="rank 0 writes its JSON there")
    parser.add_argument("--device", default="cpu", choices=["cpu", "cuda"])
    parser.add_argument("--collectives", default="all_reduce", type=lambda text: text.split(","))
    parser.add_argument("--sizes", default="4", type=lambda text: [int(n) for n in text.split(",")])
    parser.add_argument("--models", default="{}", type=json.loads)
    parser.add_argument("--budget", type=float, default=0.3, help="seconds of one cell")
    parser.add_argument("--iterations", type=int, default=2000, help="of one cell, at most")
    run(parser.parse_args())


if __name__ == "__main__":
    main()
