#!/usr/bin/python3
"""One rank of a training, by tutti_torch.DataParallel or by PyTorch's DistributedDataParallel with gloo.

Started by bench/torch_train_compare.py, which sets RANK, WORLD_SIZE, MASTER_ADDR and MASTER_PORT. By hand, one rank:

    RANK=0 WORLD_SIZE=1 MASTER_ADDR=127.0.0.1 MASTER_PORT=29411 bench/torch_train_rank.py \\
        --by tutti --model mlp --layers 4 --width 256 --tokens 64 --out /dev/stdout

Times are medians over the steps, of the slowest rank, in seconds. `compute` is the plain module with torch's AdamW,
without communication; memory is what all ranks together take (Pss), in bytes.
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

from overlap_ddp import make_model, slowest  # beside this file

RATE = 1e-4


def by_ddp(module, options):
    from torch.nn.parallel import DistributedDataParallel
    model = DistributedDataParallel(module, bucket_cap_mb=options.bucket_mib or 25, gradient_as_bucket_view=True,
                                    broadcast_buffers=False)
    optimizer = torch.optim.AdamW(module.parameters(), lr=RATE)

    def step(x):
        model(x).sum().backward()
        optimizer.step()
        optimizer.zero_grad()  # keeps the views of the buckets
    return step, lambda: {}


def by_tutti(module, options):
    import tutti_torch
    model = tutti_torch.DataParallel(module, lr=RATE, zero=options.zero, bucket_mb=options.bucket_mib,
                                     broadcast_buffers=False)

    def step(x):
        model.backward(model(x).sum())
        model.step()

    def report():
        times = model.report()
        return {"report": times.mean, "kept": model.memory()} if times else {}
    return step, report


def alone(module, _):
    optimizer = torch.optim.AdamW(module.parameters(), lr=RATE)

    def step(x):
        module(x).sum().backward()
        optimizer.step()
        optimizer.zero_grad()
    return step, lambda: {}


def step_times(make, options):
    torch.manual_seed(1)
    module, x = make_model(options)
    step, report = make(module, options)
    for _ in range(options.warmup):
        step(x)
    dist.barrier()
    ends = [time.perf_counter()]
    for _ in range(options.steps):
        step(x)
        ends.append(time.perf_counter())
    median = statistics.median(b - a for a, b in zip(ends, ends[1:]))
    return slowest([median])[0], report()


def memory_of_all():
    """Shared memory is shared out among those who have it."""
    with open("/proc/self/smaps_rollup", encoding="ascii") as file:
        own = 1024 * int(re.search(r"^Pss:\s+(\d+)", file.read(), re.M).group(1))
    total = torch.tensor([own], dtype=torch.int64)
    dist.all_reduce(total)
    return total.item()


def parse():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--by", choices=("tutti", "ddp"), required=True)
    parser.add_argument("--model", choices=("timed", "mlp"), default="mlp")
    parser.add_argument("--layers", type=int, default=6)
    parser.add_argument("--layer-bytes", type=int, default=1 << 20, help="of a timed layer")
    parser.add_argument("--forward-ms", type=float, default=0, help="timed: of all layers")
    parser.add_argument("--backward-ms", type=float, default=0)
    parser.add_argument("--width", type=int, default=256, help="of an mlp block")
    parser.add_argument("--tokens", type=int, default=64)
    parser.add_argument("--bucket-mib", type=float, help="absent: what each takes by default")
    parser.add_argument("--zero", type=int, default=1)
    parser.add_argument("--steps", type=int, default=10)
    parser.add_argument("--warmup", type=int, default=3)
    parser.add_argument("--out", required=True, help="rank 0 writes its JSON there")
    return parser.parse_args()


def main():
    options = parse()
    torch.set_num_threads(1)
    warnings.simplefilter("ignore")
    if options.by == "tutti":
        import tutti_torch  # noqa: F401  (registers the backend)
    dist.init_process_group("tutti" if options.by == "tutti" else "gloo")
    before = memory_of_all()
    times, report = step_times(by_tutti if options.by == "tutti" else by_ddp, options)
    result = {"step_s": times, "memory": memory_of_all() - before, **report}
    result["compute_s"] = step_times(alone, options)[0]
    if dist.get_rank() == 0:
        with open(options.out, "w", encoding="utf-8") as file:
            json.dump(result, file)
    dist.barrier()
    os._exit(0)  # no tear-down: gloo's may wait for a peer that is gone already


if __name__ == "__main__":
    main()
