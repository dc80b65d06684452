#!/usr/bin/env python3
"""What a collective costs from Python: µs per call of all_reduce on numpy arrays.

    PYTHONPATH=build/python build/bin/tutti run -n 2 /usr/bin/python3 bench/python_latency.py
    … bench/python_latency.py --json --rounds 7

Each figure is the median over rounds of the mean of a few thousand calls in a row, on the slowest
rank. `in place` is out=x, `new` leaves the result's memory to numpy, `symmetric` is group.empty,
`async` is start and wait. `binding` is the same in a group of one, where nobody is waited for:
about what Python adds to every call. For the same from C++:

    build/bin/tutti bench all_reduce -n 2 --dtype f64 --op max --memory plain --back-to-back
"""
import argparse
import json
import statistics
import sys
import time

import numpy as np

import tutti

SIZES = [8, 64, 1024, 16 << 10, 64 << 10, 256 << 10, 1 << 20]


def microseconds(call, group, calls, rounds):
    """Median over rounds; in each, the slowest rank's mean."""
    means = []
    for _ in range(rounds + 1):  # the first round warms up
        group.barrier()
        start = time.perf_counter()
        for _ in range(calls):
            call()
        mean = (time.perf_counter() - start) / calls * 1e6
        means.append(float(group.all_reduce(mean, "max")))
    return statistics.median(means[1:])


def calls_for(size, world):
    """Enough for a few milliseconds."""
    return max(20, min(5000, (64 << 20) // (size * 16)) // (1 if world.size <= 2 else 4))


def row(size, world, alone, rounds):
    count = max(1, size // 8)
    x, shared = np.ones(count), world.empty(count)
    result = {"bytes": size}
    for name, call in {
        "in place": lambda: world.all_reduce(x, "max", out=x),
        "new": lambda: world.all_reduce(x, "max"),
        "symmetric": lambda: world.all_reduce(shared, "max", out=shared),
        "async": lambda: world.all_reduce_async(x, "max", out=x).wait(),
    }.items():
        result[name] = microseconds(call, world, calls_for(size, world), rounds)
    result["binding"] = microseconds(lambda: alone.all_reduce(x, "max", out=x), alone,
                                     calls_for(size, world), rounds)
    return result


def main():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=5, help="rounds per figure (5)")
    parser.add_argument("--sizes", default=",".join(map(str, SIZES)), help="bytes, with commas")
    parser.add_argument("--json", action="store_true", help="one JSON object instead of the table")
    arguments = parser.parse_args()
    if arguments.rounds < 1:
        parser.error("--rounds must be at least 1")
    try:
        sizes = [int(word) for word in arguments.sizes.split(",")]
    except ValueError:
        parser.error(f"--sizes takes numbers with commas, not '{arguments.sizes}'")
    with tutti.init() as world:
        alone = world.split(world.rank, name="alone")
        rows = [row(size, world, alone, arguments.rounds) for size in sizes]
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
