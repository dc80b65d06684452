#!/usr/bin/env python3
"""What a collective costs from Python: µs per call of all_reduce on numpy arrays.

    PYTHONPATH=build/python build/bin/tutti run -n 2 /usr/bin/python3 bench/python_latency.py
    … bench/python_latency.py --json --calls 500

Each figure is the median call of the slowest rank. `in place` is out=x, `new` leaves the result's
memory to numpy, `symmetric` is group.empty, `async` is start and wait. Where there is a core for
each rank, each keeps to one. What Python adds is the difference to the same from C++:

    build/bin/tutti bench all_reduce -n 2 --dtype f64 --op max --placement in --warm
"""
import argparse
import json
import os
import statistics
import sys
import time

import numpy as np

import tutti

SIZES = [8, 64, 1024, 16 << 10, 64 << 10, 256 << 10, 1 << 20]


def microseconds(call, group, calls):
    """The median call of the slowest rank. Reading the clock, some 0.05 µs, is in it."""
    times = []
    for _ in range(calls // 10):  # warms up
        call()
    group.barrier()
    for _ in range(calls):
        start = time.perf_counter()
        call()
        times.append(time.perf_counter() - start)
    return float(group.all_reduce(statistics.median(times) * 1e6, "max"))


def keep_to_one_core(rank, size):
    """This thread's core, where there are enough: two ranks on one core measure the scheduler."""
    cores = sorted(os.sched_getaffinity(0))
    if len(cores) >= size:
        os.sched_setaffinity(0, {cores[rank]})


def row(size, world, calls):
    count = max(1, size // 8)
    x, shared = np.ones(count), world.empty(count)
    result = {"bytes": size}
    for name, call in {
        "in place": lambda: world.all_reduce(x, "max", out=x),
        "new": lambda: world.all_reduce(x, "max"),
        "symmetric": lambda: world.all_reduce(shared, "max", out=shared),
        "async": lambda: world.all_reduce_async(x, "max", out=x).wait(),
    }.items():
        result[name] = microseconds(call, world, calls)
    return result


def main():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--calls", type=int, default=2000, help="calls per figure (2000)")
    parser.add_argument("--sizes", default=",".join(map(str, SIZES)), help="bytes, with commas")
    parser.add_argument("--json", action="store_true", help="one JSON object instead of the table")
    arguments = parser.parse_args()
    if arguments.calls < 1:
        parser.error("--calls must be at least 1")
    try:
        sizes = [int(word) for word in arguments.sizes.split(",")]
    except ValueError:
        parser.error(f"--sizes takes numbers with commas, not '{arguments.sizes}'")
    with tutti.init() as world:
        keep_to_one_core(world.rank, world.size)
        rows = [row(size, world, arguments.calls) for size in sizes]
        if world.rank == 0:
            report(rows, world.size, arguments.json)


def report(rows, size, as_json):
    if as_json:
        print(json.dumps({"collective": "all_reduce", "dtype": "f64", "op": "max", "ranks": size,
                          "unit": "us", "rows": rows}))
        return
    names = [name for name in rows[0] if name != "bytes"]
    print(f"all_reduce, f64, max, {size} ranks: µs per call from Python")
    print(f"{'bytes':>9}" + "".join(f"{name:>12}" for name in names))
    for each in rows:
        print(f"{each['bytes']:>9}" + "".join(f"{each[name]:>12.2f}" for name in names))


if __name__ == "__main__":
    sys.exit(main())
