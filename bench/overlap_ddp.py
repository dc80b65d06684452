#!/usr/bin/python3
"""One rank of the same training as bench/overlap_tutti.cpp, under PyTorch DDP with Gloo.

Started by bench/overlap, which sets RANK, WORLD_SIZE, MASTER_ADDR, MASTER_PORT. By hand, one rank:

    RANK=0 WORLD_SIZE=1 MASTER_ADDR=127.0.0.1 MASTER_PORT=29411 bench/overlap_ddp.py \\
        --model mlp --layers 4 --width 256 --tokens 512 --phases compute,train --out /dev/stdout

Times are medians over the steps, and of those the slowest rank's, in seconds.
"""
import argparse
import json
import os
import statistics
import time
from contextlib import nullcontext

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel


class Sleep(torch.autograd.Function):
    """A layer whose compute happens elsewhere: it takes its time, and its gradient is there."""

    @staticmethod
    def forward(ctx, x, weight, layer):
        ctx.layer = layer
        time.sleep(layer.forward_s)
        return x.clone()

    @staticmethod
    def backward(ctx, grad):
        time.sleep(ctx.layer.backward_s)
        return grad, ctx.layer.gradient, None


class TimedLayer(torch.nn.Module):
    def __init__(self, count, forward_s, backward_s, gradient):
        super().__init__()
        self.weight = torch.nn.Parameter(torch.ones(count))
        self.forward_s, self.backward_s, self.gradient = forward_s, backward_s, gradient

    def forward(self, x):
        return Sleep.apply(x, self.weight, self)


class MlpBlock(torch.nn.Module):
    """x + W2 gelu(W1 norm(x)), as in a transformer."""

    def __init__(self, width):
        super().__init__()
        self.norm = torch.nn.LayerNorm(width)
        self.up = torch.nn.Linear(width, 4 * width)
        self.down = torch.nn.Linear(4 * width, width)

    def forward(self, x):
        return x + self.down(torch.nn.functional.gelu(self.up(self.norm(x))))


def make_model(options):
    """The model, and one rank's input."""
    if options.model == "mlp":
        blocks = [MlpBlock(options.width) for _ in range(options.layers)]
        return torch.nn.Sequential(*blocks), torch.randn(options.tokens, options.width)
    count = options.layer_bytes // 4
    gradient = torch.full((count,), 1e-3)
    times = options.forward_ms / 1e3 / options.layers, options.backward_ms / 1e3 / options.layers
    layers = [TimedLayer(count, *times, gradient) for _ in range(options.layers)]
    return torch.nn.Sequential(*layers), torch.ones(1)


class Training:
    def __init__(self, options):
        self.options = options
        module, self.x = make_model(options)
        self.ddp = DistributedDataParallel(module, bucket_cap_mb=options.bucket_mib,
                                           gradient_as_bucket_view=True, broadcast_buffers=False)
        if options.optimizer == "adamw":
            self.optimizer = torch.optim.AdamW(module.parameters(), lr=1e-4)
        else:
            self.optimizer = torch.optim.SGD(module.parameters(), lr=1e-4, momentum=0.9)

    def step(self, communicate):
        """Begin of forward, of backward, of the update, and its end."""
        with nullcontext() if communicate else self.ddp.no_sync():
            times = [time.perf_counter()]
            loss = self.ddp(self.x).sum()
            times.append(time.perf_counter())
            loss.backward()
        times.append(time.perf_counter())
        self.optimizer.step()
        self.optimizer.zero_grad()  # keeps the views of the buckets
        return times + [time.perf_counter()]

    def run(self, communicate):
        for _ in range(self.options.warmup):
            self.step(communicate)
        dist.barrier()
        steps = [self.step(communicate) for _ in range(self.options.steps)]
        begins = [s[0] for s in steps] + [steps[-1][3]]
        medians = [statistics.median(b - a for a, b in zip(begins, begins[1:]))]
        medians += [statistics.median(s[i + 1] - s[i] for s in steps) for i in range(3)]
        return dict(zip(("step_s", "forward_s", "backward_s", "update_s"), slowest(medians)))

    def bucket_bytes(self):
        """As DDP cuts them once it knows the order of gradients; for a Training of its own."""
        sizes = {}

        def look(_, bucket):
            sizes[bucket.index()] = bucket.buffer().numel() * 4
            future = torch.futures.Future()
            future.set_result(bucket.buffer())
            return future

        self.ddp.register_comm_hook(None, look)
        for _ in range(2):
            sizes.clear()
            self.step(True)
        return [sizes[index] for index in sorted(sizes)]

    def communication(self):
        """The all_reduces of a step back to back."""
        sizes = Training(self.options).bucket_bytes()
        buckets = [torch.zeros(size // 4) for size in sizes]
        times = []
        for _ in range(self.options.repeats + 1):
            dist.barrier()
            begin = time.perf_counter()
            works = [dist.all_reduce(bucket, async_op=True) for bucket in buckets]
            for work in works:
                work.wait()
            times.append(time.perf_counter() - begin)
        return {"communication_s": slowest([statistics.median(times[1:])])[0],
                "bucket_bytes": sizes}


def slowest(values):
    tensor = torch.tensor(values, dtype=torch.float64)
    dist.all_reduce(tensor, op=dist.ReduceOp.MAX)
    return tensor.tolist()


def parse():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", choices=("timed", "mlp"), default="timed")
    parser.add_argument("--layers", type=int, default=16)
    parser.add_argument("--layer-bytes", type=int, default=2 << 20, help="of a timed layer")
    parser.add_argument("--forward-ms", type=float, default=0, help="timed: of all layers")
    parser.add_argument("--backward-ms", type=float, default=0)
    parser.add_argument("--width", type=int, default=256, help="of an mlp block")
    parser.add_argument("--tokens", type=int, default=512)
    parser.add_argument("--optimizer", choices=("sgd", "adamw"), default="sgd")
    parser.add_argument("--bucket-mib", type=float, default=25)
    parser.add_argument("--steps", type=int, default=10)
    parser.add_argument("--warmup", type=int, default=3)
    parser.add_argument("--repeats", type=int, default=5, help="of the communication alone")
    parser.add_argument("--phases", default="compute,train", help="and communication")
    parser.add_argument("--out", required=True, help="rank 0 writes its JSON there")
    return parser.parse_args()


def main():
    options = parse()
    torch.set_num_threads(1)
    torch.manual_seed(1)
    dist.init_process_group("gloo")
    training = Training(options)
    runs = {"communication": training.communication, "compute": lambda: training.run(False),
            "train": lambda: training.run(True)}
    result = {phase: runs[phase]() for phase in options.phases.split(",")}
    if dist.get_rank() == 0:
        with open(options.out, "w", encoding="utf-8") as file:
            json.dump(result, file)
    dist.barrier()
    # No tear-down: Gloo's may wait for a peer that is gone already.
    os._exit(0)


if __name__ == "__main__":
    main()
