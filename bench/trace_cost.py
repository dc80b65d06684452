#!/usr/bin/env python3
"""What a trace costs: steps of pretrain_gpt with and without --trace, in turn, and a bare event.

    bench/trace_cost.py [--ranks 2] [--rounds 5] [--iters 30] [--json]

Prints the median step of each, their ratio, and bytes and events of a step. On a machine that others use
the ratio wanders by more than the cost: look at several rounds.
"""
import argparse
import glob
import json
import os
import statistics
import subprocess
import sys
import tempfile

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))


def steps(ranks, iters, folder, trace):
    log = os.path.join(folder, "log.jsonl")
    words = [f"{ROOT}/build/bin/tutti", "run", "-n", str(ranks), f"{ROOT}/build/bin/pretrain_gpt",
             "--data-path", "/usr/share/common-licenses/GPL-3", "--num-layers", "4", "--hidden-size",
             "128", "--seq-length", "64", "--micro-batch-size", "2", "--train-iters", str(iters),
             "--use-distributed-optimizer", "--overlap-grad-reduce", "--overlap-param-gather",
             "--async-log-allreduce", "--log-json", log]
    if trace:
        words += ["--trace", trace]
    subprocess.run(words, check=True, stdout=subprocess.DEVNULL)
    with open(log) as file:
        lines = [json.loads(line) for line in file]
    return [line["max"]["step_s"] for line in lines if "event" not in line][5:]


def main():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--ranks", type=int, default=2)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--iters", type=int, default=30)
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    if options.iters < 7:
        parser.error("--iters must be at least 7: the first five are left out")
    plain, traced = [], []
    with tempfile.TemporaryDirectory() as folder:
        for number in range(options.rounds):
            plain += steps(options.ranks, options.iters, folder, "")
            traces = os.path.join(folder, f"traces{number}")
            traced += steps(options.ranks, options.iters, folder, traces)
        size = os.path.getsize(glob.glob(traces + "/rank-0.*.trace")[0])
    result = {"ranks": options.ranks, "steps": len(plain),
              "plain_ms": statistics.median(plain) * 1e3, "traced_ms": statistics.median(traced) * 1e3,
              "events_per_step": (size - 512) / 64 / options.iters}
    result["ratio"] = result["traced_ms"] / result["plain_ms"]
    if options.json:
        print(json.dumps(result))
        return 0
    print(f"{len(plain)} steps each on {options.ranks} ranks: {result['plain_ms']:.3f} ms plain, "
          f"{result['traced_ms']:.3f} ms traced, ratio {result['ratio']:.4f}; "
          f"{result['events_per_step']:.0f} events a step and rank")
    return 0


if __name__ == "__main__":
    sys.exit(main())
