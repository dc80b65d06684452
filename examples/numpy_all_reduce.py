#!/usr/bin/env python3
"""Sums and averages of numpy arrays over all ranks, in the three ways that there are.

    PYTHONPATH=build/python build/bin/tutti run -n 3 /usr/bin/python3 examples/numpy_all_reduce.py
"""
import numpy as np

import tutti

with tutti.init() as group:
    # Every rank has an array of its own number, counted from one.
    mine = np.full((2, 2), group.rank + 1, dtype=np.float32)

    # 1. A new array, as numpy's functions give it; `mine` stays as it is.
    total = tutti.all_reduce(mine)
    print(f"rank {group.rank}: the sum of everybody's {mine.shape} arrays is {total.tolist()}")

    # 2. In place: `out` is what a call writes, and nothing else is.
    tutti.all_reduce(mine, "avg", out=mine)
    print(f"rank {group.rank}: on average they are {mine[0, 0]:g}")

    # 3. While something else is computed. Memory from the group is not even copied.
    shared = group.empty(1000)
    shared[:] = np.arange(1000) * group.rank
    work = tutti.all_reduce_async(shared, "max", out=shared)
    squares = sum(i * i for i in range(100))
    work.wait()
    print(f"rank {group.rank}: the largest of the last elements is {shared[-1]:g}, "
          f"meanwhile it found {squares}")

    # Numbers work as well, and so does whatever has the buffer protocol or speaks DLPack.
    losses = tutti.all_gather(0.5 * group.rank)
    print(f"rank {group.rank}: all losses are {losses.tolist()}")

    # Errors are exceptions that say who did what.
    try:
        tutti.all_reduce(mine, "median")
    except tutti.InvalidArgument as error:
        print(f"rank {group.rank}: {error}")
