#!/usr/bin/python3
"""One rank of a training: by tutti_torch.DataParallel, by PyTorch's DistributedDataParallel and FSDP, and alone.

Started by bench/torch_train_compare.py, which sets RANK, WORLD_SIZE, MASTER_ADDR and MASTER_PORT. By hand, one rank:

    RANK=0 WORLD_SIZE=1 MASTER_ADDR=127.0.0.1 MASTER_PORT=29411 bench/torch_train_rank.py \\
        --model mlp --layers 4 --width 256 --tokens 64 --out /dev/stdout

All of them are in one process and take turns, a few steps each, so that whatever the machine does meanwhile meets all alike.
`alone` is the plain module with torch's AdamW, without communication. A turn's time is the median of its steps, of the
slowest rank, in seconds; on a GPU, where steps overlap, the mean. Memory is what a contestant adds in all ranks together,
in bytes: on the CPU what it keeps (Pss), on a GPU what it has taken there at most.
"""
import argparse
import gc
import json
import os
import re
import statistics
import time
import warnings

import torch
import torch.distributed as dist

import tutti_torch
from overlap_ddp import MlpBlock, TimedLayer, make_model, slowest  # beside this file

RATE = 1e-4
LAYERS = (MlpBlock, TimedLayer)


class Alone:
    """Plain torch; also says how long each part of a step takes."""

    def __init__(self, module):
        self.model, self.parts = module, []
        self.optimizer = torch.optim.AdamW(self.model.parameters(), lr=RATE)

    def step(self, x):
        times = [time.perf_counter()]
        loss = self.model(x).sum()
        times.append(time.perf_counter())
        loss.backward()
        times.append(time.perf_counter())
        self.optimizer.step()
        self.optimizer.zero_grad()  # DDP: keeps the views of the buckets
        self.parts.append([b - a for a, b in zip(times, times[1:] + [time.perf_counter()])])


class Ddp(Alone):
    def __init__(self, module, group, bucket_mib):
        from torch.nn.parallel import DistributedDataParallel
        super().__init__(DistributedDataParallel(module, process_group=group, bucket_cap_mb=bucket_mib,
                                                 gradient_as_bucket_view=True, broadcast_buffers=False))


class Fsdp1(Alone):
    def __init__(self, module, group, device):
        from torch.distributed.fsdp import FullyShardedDataParallel
        from torch.distributed.fsdp.wrap import ModuleWrapPolicy
        super().__init__(FullyShardedDataParallel(module, process_group=group, device_id=device, use_orig_params=True,
                                                  auto_wrap_policy=ModuleWrapPolicy(set(LAYERS))))


class Fsdp2(Alone):
    def __init__(self, module, group, device):
        from torch.distributed.device_mesh import DeviceMesh
        from torch.distributed.fsdp import fully_shard
        mesh = DeviceMesh.from_group(group, device.type)
        for part in module.modules():
            if isinstance(part, LAYERS):
                fully_shard(part, mesh=mesh)
        super().__init__(fully_shard(module, mesh=mesh))


class Tutti:
    def __init__(self, module, way, options):
        numbers = {"grad_dtype": torch.bfloat16} if way.endswith("bf16") else {}
        self.model = tutti_torch.DataParallel(module, lr=RATE, zero=int(way[0]), bucket_mb=options.bucket_mib, units=LAYERS,
                                              broadcast_buffers=False, **numbers)

    def step(self, x):
        self.model.backward(self.model(x).sum())
        self.model.step()


def makers_of(options):
    """By name, who makes a contestant of a module."""
    makers = {"alone": Alone}
    for way in options.ways:
        makers[f"tutti {way}"] = lambda module, way=way: Tutti(module, way, options)
    for rival in options.rivals:
        kind, backend = rival.split("@")
        group = dist.new_group(backend=backend)
        if kind == "ddp":
            for mib in options.ddp_buckets:
                makers[f"{rival} {mib:g}"] = lambda module, group=group, mib=mib: Ddp(module, group, mib)
        else:
            maker = {"fsdp1": Fsdp1, "fsdp2": Fsdp2}[kind]
            makers[rival] = lambda module, group=group, maker=maker: maker(module, group, options.device)
    return makers


def make_contestants(options):
    """By name: who makes a step, on which input, and what memory that takes; and why others do not work here."""
    made, refused = {}, {}
    for name, maker in makers_of(options).items():
        torch.manual_seed(1)
        before = memory_of_all(options.device, begins=True)
        module, x = make_model(options)
        x = x.to(options.device)
        try:
            contestant = maker(module.to(options.device))
            for _ in range(options.warmup):
                contestant.step(x)
        except (RuntimeError, NotImplementedError, AssertionError) as error:
            if name.startswith("tutti"):
                raise
            refused[name] = f"{type(error).__name__}: {error}"
            continue
        made[name] = contestant, x, memory_of_all(options.device) - before
    return made, refused


def take_turn(contestant, x, steps):
    contestant.step(x)
    finish(x)
    dist.barrier()
    contestant.parts = []
    ends = [time.perf_counter()]
    for _ in range(steps):
        contestant.step(x)
        ends.append(time.perf_counter())
    finish(x)
    times = [b - a for a, b in zip(ends, ends[1:])]
    own = (time.perf_counter() - ends[0]) / steps if x.is_cuda else statistics.median(times)
    turn = {"step_s": slowest([own])[0]}
    if isinstance(contestant, Alone) and not x.is_cuda:
        turn["parts_s"] = slowest([statistics.median(part) for part in zip(*contestant.parts)])
    if isinstance(contestant, Tutti) and (report := contestant.model.report()):
        turn["exposed_s"] = report.mean["exposed_ms"] / 1e3
    return turn


def finish(x):
    if x.is_cuda:
        torch.cuda.synchronize()


def memory_of_all(device, begins=False):
    """Shared memory is shared out among those who have it; a GPU's is that of all its ranks."""
    if device.type == "cuda":
        torch.cuda.synchronize()
        if begins:
            gc.collect()
            torch.cuda.empty_cache()
        dist.barrier()
        free, total = torch.cuda.mem_get_info()
        dist.barrier()
        return total - free
    with open("/proc/self/smaps_rollup", encoding="ascii") as file:
        own = 1024 * int(re.search(r"^Pss:\s+(\d+)", file.read(), re.M).group(1))
    total = torch.tensor([own], dtype=torch.int64)
    dist.all_reduce(total)
    return total.item()


def parse():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", choices=("timed", "mlp"), default="mlp")
    parser.add_argument("--device", type=torch.device, default=torch.device("cpu"))
    parser.add_argument("--layers", type=int, default=6)
    parser.add_argument("--layer-bytes", type=int, default=1 << 20, help="of a timed layer")
    parser.add_argument("--forward-ms", type=float, default=0, help="timed: of all layers")
    parser.add_argument("--backward-ms", type=float, default=0)
    parser.add_argument("--width", type=int, default=256, help="of an mlp block")
    parser.add_argument("--tokens", type=int, default=64)
    parser.add_argument("--bucket-mib", type=float, help="of tutti; absent: its own choice")
    parser.add_argument("--ways", nargs="+", default=["1"], help="of tutti: 0 to 3 is zero, then bf16 sends gradients so")
    parser.add_argument("--rivals", nargs="*", default=["ddp@gloo"], help="ddp, fsdp1 or fsdp2, each @ a backend")
    parser.add_argument("--ddp-buckets", type=float, nargs="+", default=[25.0, 4.0], help="MiB")
    parser.add_argument("--steps", type=int, default=4, help="in a turn")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--warmup", type=int, default=2)
    parser.add_argument("--out", required=True, help="rank 0 writes its JSON there")
    return parser.parse_args()


def main():
    options = parse()
    torch.set_num_threads(1)
    warnings.simplefilter("ignore")
    if options.device.type == "cuda":
        options.device = torch.device("cuda", 0)  # which all ranks share
        torch.cuda.set_device(options.device)
    dist.init_process_group("tutti")
    contestants, refused = make_contestants(options)
    rounds = []
    for number in range(options.rounds):
        names = sorted(contestants, reverse=number % 2 == 1)
        rounds.append({name: take_turn(*contestants[name][:2], options.steps) for name in names})
    if dist.get_rank() == 0:
        gradients = 4 * sum(p.numel() for p in contestants["alone"][0].model.parameters())
        with open(options.out, "w", encoding="utf-8") as file:
            json.dump({"gradient_bytes": gradients, "refused": refused, "rounds": rounds,
                       "memory": {name: made[2] for name, made in contestants.items()}}, file)
    dist.barrier()
    os._exit(0)  # no tear-down: gloo's may wait for a peer that is gone already


if __name__ == "__main__":
    main()
