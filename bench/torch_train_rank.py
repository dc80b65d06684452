#!/usr/bin/python3
"""One rank of a training: by tutti_torch.DataParallel, by PyTorch's DistributedDataParallel with gloo, and alone.

Started by bench/torch_train_compare.py, which sets RANK, WORLD_SIZE, MASTER_ADDR and MASTER_PORT. By hand, one rank:

    RANK=0 WORLD_SIZE=1 MASTER_ADDR=127.0.0.1 MASTER_PORT=29411 bench/torch_train_rank.py \\
        --model mlp --layers 4 --width 256 --tokens 64 --out /dev/stdout

All of them are in one process and take turns, a few steps each, so that whatever the machine does meanwhile meets all alike.
`alone` is the plain module with torch's AdamW, without communication. A turn's time is the median of its steps, of the
slowest rank, in seconds; memory is what a contestant adds in all ranks together (Pss), in bytes.
"""
import argparse
import json
import os
import re
import statistics
import time
import warnings

import torch
import torch.distributed as dist

import tutti_torch
from overlap_ddp import make_model, slowest  # beside this file

RATE = 1e-4


class Ddp:
    def __init__(self, module, bucket_mib):
        from torch.nn.parallel import DistributedDataParallel
        self.model = DistributedDataParallel(module, process_group=dist.new_group(backend="gloo"),
                                             bucket_cap_mb=bucket_mib, gradient_as_bucket_view=True,
                                             broadcast_buffers=False)
        self.optimizer = torch.optim.AdamW(module.parameters(), lr=RATE)

    def step(self, x):
        self.model(x).sum().backward()
        self.optimizer.step()
        self.optimizer.zero_grad()  # keeps the views of the buckets


class Alone(Ddp):
    def __init__(self, module, _):
        self.model, self.optimizer = module, torch.optim.AdamW(module.parameters(), lr=RATE)


class Tutti:
    def __init__(self, module, options):
        self.model = tutti_torch.DataParallel(module, lr=RATE, zero=options.zero, bucket_mb=options.bucket_mib,
                                              broadcast_buffers=False)

    def step(self, x):
        self.model.backward(self.model(x).sum())
        self.model.step()


def make_contestants(options):
    """By name: who makes a step, on which input, and what memory that takes."""
    makers = {"alone": lambda module: Alone(module, None), "tutti": lambda module: Tutti(module, options)}
    for mib in options.ddp_buckets:
        makers[f"ddp {mib}"] = lambda module, mib=mib: Ddp(module, mib)
    made = {}
    for name, maker in makers.items():
        torch.manual_seed(1)
        before = memory_of_all()
        module, x = make_model(options)
        contestant = maker(module)
        for _ in range(options.warmup):
            contestant.step(x)
        made[name] = contestant, x, memory_of_all() - before
    return made


def take_turn(contestant, x, steps):
    contestant.step(x)
    dist.barrier()
    ends = [time.perf_counter()]
    for _ in range(steps):
        contestant.step(x)
        ends.append(time.perf_counter())
    turn = {"step_s": slowest([statistics.median(b - a for a, b in zip(ends, ends[1:]))])[0]}
    if isinstance(contestant, Tutti) and (report := contestant.model.report()):
        turn["exposed_s"] = report.mean["exposed_ms"] / 1e3
    return turn


def memory_of_all():
    """Shared memory is shared out among those who have it."""
    with open("/proc/self/smaps_rollup", encoding="ascii") as file:
        own = 1024 * int(re.search(r"^Pss:\s+(\d+)", file.read(), re.M).group(1))
    total = torch.tensor([own], dtype=torch.int64)
    dist.all_reduce(total)
    return total.item()


def parse():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", choices=("timed", "mlp"), default="mlp")
    parser.add_argument("--layers", type=int, default=6)
    parser.add_argument("--layer-bytes", type=int, default=1 << 20, help="of a timed layer")
    parser.add_argument("--forward-ms", type=float, default=0, help="timed: of all layers")
    parser.add_argument("--backward-ms", type=float, default=0)
    parser.add_argument("--width", type=int, default=256, help="of an mlp block")
    parser.add_argument("--tokens", type=int, default=64)
    parser.add_argument("--bucket-mib", type=float, help="of tutti; absent: its own choice")
    parser.add_argument("--ddp-buckets", type=float, nargs="+", default=[25.0, 4.0], help="MiB")
    parser.add_argument("--zero", type=int, default=1)
    parser.add_argument("--steps", type=int, default=4, help="in a turn")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--warmup", type=int, default=2)
    parser.add_argument("--out", required=True, help="rank 0 writes its JSON there")
    return parser.parse_args()


def main():
    options = parse()
    torch.set_num_threads(1)
    warnings.simplefilter("ignore")
    dist.init_process_group("tutti")
    contestants = make_contestants(options)
    rounds = []
    for number in range(options.rounds):
        names = sorted(contestants, reverse=number % 2 == 1)
        rounds.append({name: take_turn(*contestants[name][:2], options.steps) for name in names})
    if dist.get_rank() == 0:
        with open(options.out, "w", encoding="utf-8") as file:
            json.dump({"memory": {name: made[2] for name, made in contestants.items()}, "rounds": rounds}, file)
    dist.barrier()
    os._exit(0)  # no tear-down: gloo's may wait for a peer that is gone already


if __name__ == "__main__":
    main()
