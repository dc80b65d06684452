#!/usr/bin/python3
"""torch.distributed on tutti beside torch's own gloo: the same Python program, in one run.

Each round starts the ranks of one backend, then those of the next, and the rounds are interleaved: what
the machine does meanwhile meets all. A time is the median over iterations of the slowest rank; a row's
time is the median over rounds, its ratio the median of the rounds' ratios. One torch thread a rank.

    bench/torch_compare.py                        # n = 2 and 4, 4 B … 64 MiB, 3 rounds
    bench/torch_compare.py --quick                # two minutes less thorough
    bench/torch_compare.py -n 2 --collectives all_reduce --sizes 4,1K,64K --json compare.json
    bench/torch_compare.py --device cuda -n 4     # all ranks on the first GPU; DDP's steps are those of a small GPT

`symmetric` is memory of tutti_torch.empty; `heap` are ordinary tensors after tutti_torch.use_shared_heap(), and its
ratio is to symmetric ones of the same processes (of a DDP step: to the step without it). The verdict is against the
targets: up to 1 KiB 20 times as fast as gloo, 64 KiB … 1 MiB 5 times, above 3 times (5 with symmetric memory), else
faster at all. On a GPU the target is to be faster; a time ends when the stream is through, and `host` is what the
host spends in starting an operation and in wait(), which only orders streams.
"""
import argparse
import json
import os
import platform
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

HERE = Path(__file__).resolve().parent
SIZES = "4,64,1K,16K,64K,256K,1M,4M,16M,64M"
QUICK_SIZES = "4,1K,64K,1M,16M"
COLLECTIVES = ("all_reduce", "all_gather", "reduce_scatter")
# name -> kind, width, layers, batch: 24 small gradients, and 16 MiB of large ones; a GPT of 27 million parameters
MODELS = {"cpu": {"small 12x64": ("linear", 64, 12, 32), "16 MiB 4x1024": ("linear", 1024, 4, 32)},
          "cuda": {"GPT 6x512": ("gpt", 512, 6, 8)}}
RANK_LIMIT_S = 900


def size_of(text):
    units = {"K": 1 << 10, "M": 1 << 20, "G": 1 << 30}
    try:
        return int(text[:-1]) * units[text[-1]] if text[-1] in units else int(text)
    except (ValueError, IndexError):
        raise argparse.ArgumentTypeError(f"'{text}' is no size; examples: 4, 64K, 16M")


def parse():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("-n", default="2,4", help="ranks (default 2,4)")
    parser.add_argument("--device", default="cpu", choices=sorted(MODELS), help="where tensors are (default cpu)")
    parser.add_argument("--collectives", default=",".join(COLLECTIVES))
    parser.add_argument("--sizes", help=f"bytes of the whole array (default {SIZES})")
    parser.add_argument("--rounds", type=int, help="default 3")
    parser.add_argument("--budget", type=float, help="seconds of one cell (default 0.3)")
    parser.add_argument("--no-ddp", action="store_true", help="leave DDP's steps out")
    parser.add_argument("--quick", action="store_true", help="n = 2, five sizes, one round")
    parser.add_argument("--json", metavar="FILE", help="write the rows there as well")
    options = parser.parse_args()
    try:
        options.ranks = [int(n) for n in ("2" if options.quick and options.n == "2,4"
                                          else options.n).split(",")]
        options.sizes = [size_of(text) for text in
                         (options.sizes or (QUICK_SIZES if options.quick else SIZES)).split(",")]
    except (ValueError, argparse.ArgumentTypeError) as error:
        parser.error(str(error))
    options.collectives = options.collectives.split(",")
    for name in options.collectives:
        if name not in COLLECTIVES:
            parser.error(f"'{name}' is none of {', '.join(COLLECTIVES)}")
    if min(options.ranks) < 1 or min(options.sizes) < 4:
        parser.error("at least one rank and 4 bytes")
    options.rounds = options.rounds or (1 if options.quick else 3)
    options.budget = options.budget or (0.1 if options.quick else 0.3)
    return options


def environment(rank, size):
    """The modules may lie in the build tree of this clone."""
    paths = [str(HERE.parent / "build" / "python"), os.environ.get("PYTHONPATH", "")]
    return {**os.environ, "RANK": str(rank), "WORLD_SIZE": str(size), "OMP_NUM_THREADS": "1",
            "PYTHONPATH": os.pathsep.join(path for path in paths if path)}


def models_of(options):
    return {} if options.no_ddp else MODELS[options.device]


def measure(backend, size, options):
    """Starts the ranks of one backend; their results by cell."""
    with tempfile.TemporaryDirectory(prefix="torch_compare_") as folder:
        with open(f"{folder}/meeting", "wb") as meeting:
            meeting.truncate(4096 * (1 + size // 64))
        command = [sys.executable, str(HERE / "torch_compare_rank.py"), "--backend", backend,
                   "--folder", folder, "--out", f"{folder}/out.json", "--device", options.device,
                   "--collectives", ",".join(options.collectives),
                   "--sizes", ",".join(map(str, options.sizes)), "--budget", str(options.budget),
                   "--models", json.dumps(models_of(options))]
        ranks = [subprocess.Popen(command, env=environment(rank, size), stderr=subprocess.PIPE,
                                  text=True) for rank in range(size)]
        try:
            for rank, process in enumerate(ranks):
                errors = process.communicate(timeout=RANK_LIMIT_S)[1]
                if process.returncode:
                    raise RuntimeError(f"{backend}, rank {rank} of {size} failed:\n{errors}")
        finally:
            for process in ranks:
                process.kill()
        with open(f"{folder}/out.json", encoding="utf-8") as file:
            return json.load(file)


def contestants(options):
    """Ranks of each are processes of their own."""
    return ["tutti", "gloo"] if options.device == "cuda" else ["tutti", "heap", "gloo"]


def target_of(what, nbytes, kind, device):
    if device == "cuda" or what == "ddp" or 1 << 10 < nbytes < 64 << 10:
        return 1.0
    if nbytes <= 1 << 10:
        return 20.0
    if nbytes <= 1 << 20:
        return 5.0
    return 5.0 if kind == "symmetric" else 3.0


def row_of(size, what, which, rounds, device):
    """One line of the table; None where a backend has no such thing."""
    def times(backend, kind):
        found = [r.get(backend, {}).get(f"{what}/{which}/{kind}") for r in rounds]
        return None if None in found else found

    gloo = times("gloo", "plain")
    row = {"ranks": size, "operation": what, "size": which, "gloo_s": gloo and statistics.median(gloo)}
    for backend in ("tutti", "gloo"):
        host = times(backend, "plain/host")
        row[f"{backend}_host_s"] = host and statistics.median(host)
    heap, beside = times("heap", "plain"), times("heap", "symmetric") or times("tutti", "plain")
    row["heap_s"] = heap and statistics.median(heap)
    row["heap_ratio"] = statistics.median(b / h for b, h in zip(beside, heap)) if heap and beside else None
    verdicts = []
    for kind in ("plain", "symmetric"):
        own = times("tutti", kind)
        row[f"{kind}_s"] = own and statistics.median(own)
        row[f"{kind}_ratio"] = statistics.median(g / t for g, t in zip(gloo, own)) if own and gloo else None
        if row[f"{kind}_ratio"] is not None:
            target = target_of(what, which if isinstance(which, int) else 0, kind, device)
            verdicts.append("reached" if row[f"{kind}_ratio"] >= target else
                            f"{kind} below {target:g}x")
    missed = [verdict for verdict in verdicts if verdict != "reached"]
    row["verdict"] = "n/a" if not verdicts else ("; ".join(missed) or "reached")
    return row


def named(which):
    if not isinstance(which, int):
        return which
    for unit, factor in (("MiB", 1 << 20), ("KiB", 1 << 10)):
        if which >= factor:
            return f"{which // factor} {unit}"
    return f"{which} B"


def micro(seconds):
    return "n/a" if seconds is None else f"{seconds * 1e6:.1f}"


def times_faster(ratio, digits=1):
    return "" if ratio is None else f"{ratio:.{digits}f}x"


def print_table(rows, device):
    def hosts(left, right):
        return f" {left:>11} {right:>10}" if device == "cuda" else ""

    print(f"{'n':>2}  {'operation':15} {'size':>14} {'tutti µs':>11} {'symmetric µs':>13} "
          f"{'heap µs':>11} {'gloo µs':>11} {'ratio':>8} {'symmetric':>10} {'heap':>7}"
          f"{hosts('host tutti', 'host gloo')}  verdict")
    for row in rows:
        print(f"{row['ranks']:>2}  {row['operation']:15} {named(row['size']):>14} "
              f"{micro(row['plain_s']):>11} {micro(row['symmetric_s']) if row['symmetric_s'] else '':>13} "
              f"{micro(row['heap_s']) if row['heap_s'] else '':>11} "
              f"{micro(row['gloo_s']):>11} {times_faster(row['plain_ratio']):>8} "
              f"{times_faster(row['symmetric_ratio']):>10} {times_faster(row['heap_ratio'], 2):>7}"
              f"{hosts(micro(row['tutti_host_s']), micro(row['gloo_host_s']))}  {row['verdict']}")


def main():
    options = parse()
    rows = []
    for size in options.ranks:
        rounds = []
        for number in range(options.rounds):
            order = contestants(options)[::1 if number % 2 == 0 else -1]
            rounds.append({})
            for backend in order:
                print(f"n = {size}, round {number + 1} of {options.rounds}: {backend}", file=sys.stderr)
                rounds[-1][backend] = measure(backend, size, options)
        cells = [(what, nbytes) for what in options.collectives for nbytes in options.sizes]
        cells += [("ddp", name) for name in models_of(options)]
        rows += [row_of(size, what, which, rounds, options.device) for what, which in cells]
    print_table(rows, options.device)
    if options.json:
        import torch
        with open(options.json, "w", encoding="utf-8") as file:
            json.dump({"torch": torch.__version__, "machine": platform.machine(), "device": options.device,
                       "cores": os.cpu_count(), "load_1min": os.getloadavg()[0],
                       "rounds": options.rounds, "rows": rows}, file, indent=1)
    return 0


if __name__ == "__main__":
    try:
        sys.exit(main())
    except (RuntimeError, subprocess.TimeoutExpired) as failure:
        print(f"torch_compare: {failure}", file=sys.stderr)
        sys.exit(1)
