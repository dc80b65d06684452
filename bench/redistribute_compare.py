#!/usr/bin/python3
"""Bytes that tensors move between layouts: tutti's plans beside the chain that torch's DTensor takes on CPU groups.

    bench/redistribute_compare.py                          # bytes and predicted times, a row for each case
    bench/redistribute_compare.py --cluster cpu-ethernet-1g --hosts 2
    bench/redistribute_compare.py --measure                # also run: both chains on 4 ranks of this machine, by torch

DTensor turns the placements of one mesh dimension after another; a shard that changes its dimension is gathered and
cut again, because its all_to_all is for GPUs. Its chain is asked of torch itself where DTensor can be imported, else
made by its rules, which are written down here; the last line says which. Bytes are what the busiest rank must send or
receive, whatever the algorithm. In measured rows a time is the median over repetitions of the slowest rank, in ms, and
torch's chain runs on the same groups of tutti: only the chain differs.
"""
import argparse
import json
import math
import os
import re
import statistics
import subprocess
import sys
import time
from pathlib import Path

HERE = Path(__file__).resolve().parent
TOOL = HERE.parent / "build/bin/tutti"
SHAPE = (2048, 4096)
MESH = {"dp": 2, "tp": 2}
CASES = [
    ("shard(0),replicate", "shard(1),replicate"),
    ("shard(0),replicate", "replicate,shard(0)"),
    ("shard(0),replicate", "replicate,replicate"),
    ("shard(0),shard(1)", "shard(1),shard(0)"),
    ("shard(0),shard(0)", "replicate,shard(0)"),
    ("shard(0),shard(1)", "shard(1),replicate"),
    ("replicate,shard(0)", "shard(0),shard(0)"),
    ("partial,shard(0)", "shard(0),shard(0)"),
    ("partial,partial", "shard(0),replicate"),
    ("partial,partial", "replicate,replicate"),
    ("shard(1),partial", "replicate,shard(1)"),
]


def words(placements):
    return [word.strip() for word in placements.split(",")]


def dimension(word):
    found = re.fullmatch(r"shard\((\d+)\)", word)
    return int(found.group(1)) if found else None


def by_rules(from_, to):
    """(mesh dimension, before, after) for each turn, as torch.distributed.tensor._redistribute orders them."""
    now, turns = list(from_), []

    def turn(axis, wanted):
        if now[axis] != wanted:
            turns.append((axis, now[axis], wanted))
            now[axis] = wanted

    for axis in reversed(range(len(now))):
        wanted = to[axis]
        if dimension(wanted) is not None:
            before = [i for i in range(axis) if now[i] == wanted]
            if before != [i for i in range(axis) if to[i] == wanted]:
                wanted = "replicate"  # another axis cuts that dimension wrongly
        turn(axis, wanted)
    for axis, wanted in enumerate(to):
        turn(axis, wanted)
    return turns


def by_torch():
    """The same, asked of torch; None where it cannot be."""
    try:
        import torch
        import torch.distributed as dist
        from torch.distributed.device_mesh import init_device_mesh
        from torch.distributed.tensor import Partial, Replicate, Shard
        from torch.distributed.tensor._dtensor_spec import DTensorSpec, TensorMeta
        from torch.distributed.tensor._redistribute import _gen_transform_infos_non_cached
        from torch.testing._internal.distributed.fake_pg import FakeStore
        dist.init_process_group("fake", store=FakeStore(), rank=0, world_size=math.prod(MESH.values()))
        mesh = init_device_mesh("cpu", tuple(MESH.values()))
        whole = torch.empty(SHAPE, device="meta")
        meta = TensorMeta(whole.shape, whole.stride(), whole.dtype)

        def placement(word):
            if word.startswith("partial"):
                return Partial("sum")
            return Replicate() if word == "replicate" else Shard(dimension(word))

        def word(placement):
            if placement.is_shard():
                return f"shard({placement.dim})"
            return "partial" if placement.is_partial() else "replicate"

        def turns(from_, to):
            specs = [DTensorSpec(mesh, tuple(map(placement, side)), meta) for side in (from_, to)]
            return [(info.mesh_dim, *map(word, info.src_dst_placements))
                    for info in _gen_transform_infos_non_cached(*specs)
                    if info.src_dst_placements[0] != info.src_dst_placements[1]]

        turns(*map(words, CASES[0]))  # its own functions change from version to version
        return turns
    except (ImportError, AttributeError, RuntimeError, TypeError) as why:
        print(f"# torch's own rules cannot be asked: {why}", file=sys.stderr)
        return None


def torch_bytes(turns, from_, item_bytes):
    """What a rank sends in these turns; shards are even."""
    sizes, moved = list(MESH.values()), 0
    local = math.prod(SHAPE) * item_bytes
    for axis, word in enumerate(from_):
        local //= sizes[axis] if dimension(word) is not None else 1
    for axis, before, after in turns:
        size = sizes[axis]
        was_shard, is_shard = dimension(before) is not None, dimension(after) is not None
        if before.startswith("partial"):
            moved += local * (size - 1) // size * (1 if is_shard else 2)
        elif was_shard:  # gathered, and cut again where it is to be a shard
            local *= size
            moved += local * (size - 1) // size
        local //= size if is_shard else 1
    return moved


def plan(from_, to, options):
    command = [str(TOOL), "show", "redistribute", "--mesh", ",".join(f"{k}={v}" for k, v in MESH.items()), "--shape",
               "x".join(map(str, SHAPE)), "--dtype", options.dtype, "--from", from_, "--to", to, "--cluster",
               options.cluster, "--hosts", str(options.hosts), "--json"]
    return json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout)


def chain_words(chain):
    return ", ".join(" ".join([step["step"], *step["along"]]) for step in chain["steps"]) or "nothing"


# ---- measured

def run_chain(steps, tensor, mesh):
    """Torch's chain by torch.distributed: what DTensor does on a group of the CPU, shards even."""
    import torch
    import torch.distributed as dist
    placements = {}
    for step in steps:
        for axis, after in zip(mesh.axes, step["after"]["placements"]):
            if axis not in step["along"] or axis in placements and placements[axis] == after:
                continue
            group, size = mesh.along(axis), mesh.axes[axis]
            if step["step"] == "all_gather":
                cut = dimension(placements.get(axis, mesh.begin[axis]))
                parts = [torch.empty_like(tensor) for _ in range(size)]
                dist.all_gather(parts, tensor.contiguous(), group=group)
                tensor = torch.cat(parts, cut)
            elif step["step"] == "slice":
                tensor = tensor.chunk(size, dimension(after))[mesh.coordinates[axis]].contiguous()
            elif step["step"] == "all_reduce":
                tensor = tensor.clone()
                dist.all_reduce(tensor, group=group)
            else:
                parts = [part.contiguous() for part in tensor.chunk(size, dimension(after))]
                tensor = torch.empty_like(parts[0])
                dist.reduce_scatter(tensor, parts, group=group)
            placements[axis] = after
    return tensor


def median_ms(body, repetitions):
    import torch
    import torch.distributed as dist
    times = []
    for _ in range(repetitions):
        dist.barrier()
        began = time.perf_counter()
        body()
        took = torch.tensor([time.perf_counter() - began])
        dist.all_reduce(took, dist.ReduceOp.MAX)
        times.append(took.item() * 1e3)
    return statistics.median(times)


def measure_rank(options):
    """On every rank, under tutti run: a line of JSON for each case, from rank 0."""
    import torch
    import torch.distributed as dist
    import tutti_torch
    torch.set_num_threads(1)
    dist.init_process_group("tutti")
    mesh = tutti_torch.Mesh(MESH)
    dtype = {"f32": torch.float32, "bf16": torch.bfloat16, "f64": torch.float64}[options.dtype]
    for from_, to in CASES:
        steps = plan(from_, to, options)["naive"]["steps"]
        mesh.begin = dict(zip(MESH, words(from_)))
        tensor = torch.randn(SHAPE).to(dtype)
        for axis, word in mesh.begin.items():
            if dimension(word) is not None:
                tensor = tensor.chunk(MESH[axis], dimension(word))[mesh.coordinates[axis]].contiguous()
        ours = tutti_torch.redistribute(tensor, mesh, from_, to, shape=SHAPE)
        assert ours.shape == run_chain(steps, tensor, mesh).shape
        times = {"ours": median_ms(lambda: tutti_torch.redistribute(tensor, mesh, from_, to, shape=SHAPE), options.repeat),
                 "torch": median_ms(lambda: run_chain(steps, tensor, mesh), options.repeat)}
        if dist.get_rank() == 0:
            print(json.dumps(times), flush=True)


def measured(options):
    command = [str(TOOL), "run", "-n", str(math.prod(MESH.values())), sys.executable, __file__, "--rank", "--dtype",
               options.dtype, "--repeat", str(options.repeat)]
    environment = {**os.environ, "PYTHONPATH": str(HERE.parent / "build/python")}
    done = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True, env=environment)
    return [json.loads(line[line.index("{"):]) for line in done.stdout.splitlines() if "{" in line]


def parse():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--dtype", default="f32", choices=["f32", "bf16", "f64"])
    parser.add_argument("--cluster", default="h100-ib400", help="whose prices (default h100-ib400)")
    parser.add_argument("--hosts", type=int, default=2, help="on so many hosts (default 2)")
    parser.add_argument("--measure", action="store_true", help="run both chains here, too")
    parser.add_argument("--repeat", type=int, default=15, help="repetitions of a measured case (default 15)")
    parser.add_argument("--rank", action="store_true", help=argparse.SUPPRESS)
    return parser.parse_args()


def main():
    options = parse()
    if options.rank:
        return measure_rank(options)
    asked = by_torch()
    turns = asked or by_rules
    item_bytes = {"f32": 4, "bf16": 2, "f64": 8}[options.dtype]
    times = measured(options) if options.measure else [None] * len(CASES)
    print(f"{'x'.join(map(str, SHAPE))} {options.dtype} on {' x '.join(f'{k} {v}' for k, v in MESH.items())}, "
          f"priced by '{options.cluster}' on {options.hosts} hosts; MB that a rank moves")
    print(f"{'from':<20}{'to':<22}{'torch':>8}{'tutti':>8}{'ratio':>7}{'predicted':>11}"
          f"{'torch ms':>10}{'tutti ms':>10}   tutti's chain")
    for (from_, to), time_ms in zip(CASES, times):
        answer = plan(from_, to, options)
        theirs = torch_bytes(turns(words(from_), words(to)), words(from_), item_bytes)
        if asked is None and theirs != answer["naive"]["rank_bytes"]:
            sys.exit(f"{from_} to {to}: these rules move {theirs} bytes, the tool's {answer['naive']['rank_bytes']}")
        ours = answer["chain"]["rank_bytes"]
        faster = answer["naive"]["seconds"] / answer["chain"]["seconds"] if answer["chain"]["seconds"] else 1
        cells = f"{time_ms['torch']:>10.2f}{time_ms['ours']:>10.2f}" if time_ms else f"{'-':>10}{'-':>10}"
        print(f"{from_:<20}{to:<22}{theirs / 1e6:>8.1f}{ours / 1e6:>8.1f}{theirs / ours if ours else 1:>7.2f}"
              f"{f'{faster:.2f} x':>11}{cells}   {chain_words(answer['chain'])}")
    print("torch's chain: " + ("asked of torch's DTensor" if asked else
                               "by DTensor's rules as they are written down here; this torch cannot be asked"))
    return 0


if __name__ == "__main__":
    sys.exit(main())
