"""Inputs that every rank can compute for every other, and what must come out.

Values are small whole numbers: every fold of them is exact in every type, so results are compared
to the bit.
"""
import functools

import numpy as np

INTEGERS = ["i1", "u1", "i2", "u2", "i4", "u4", "i8", "u8"]
FLOATS = ["f2", "f4", "f8"]
COMPLEX = ["c8", "c16"]
DTYPES = INTEGERS + FLOATS + COMPLEX + ["?"]


def ops_for(dtype):
    kind = np.dtype(dtype).kind
    if kind == "c":
        return ["sum", "avg", "premul_sum"]
    if kind == "b":
        return ["sum", "prod", "min", "max", "band", "bor", "bxor"]
    both = ["sum", "prod", "min", "max", "avg"]
    return both + (["premul_sum"] if kind == "f" else ["band", "bor", "bxor"])


def values(rank, shape, dtype, op="sum"):
    """Rank's input. Averages of 1 … 4 ranks come out even."""
    random = np.random.default_rng(rank + 17)
    dtype = np.dtype(dtype)
    if dtype.kind == "b":
        return random.integers(0, 2, shape).astype(dtype)
    numbers = random.integers(1, 3, shape) * (12 if op == "avg" else 1)
    if dtype.kind == "c":
        return (numbers + 1j * numbers[..., ::-1]).astype(dtype) if np.ndim(numbers) else \
            dtype.type(numbers)
    return np.asarray(numbers).astype(dtype)


def fold(parts, op, scalar=1.0):
    """What `op` makes of one array per rank, in their own dtype."""
    parts = [np.asarray(part) for part in parts]
    dtype = parts[0].dtype
    if dtype.kind == "b":
        op = {"sum": "bor", "prod": "band", "min": "band", "max": "bor"}.get(op, op)
    functions = {"sum": np.add, "avg": np.add, "premul_sum": np.add, "prod": np.multiply,
                 "min": np.minimum, "max": np.maximum, "band": np.bitwise_and,
                 "bor": np.bitwise_or, "bxor": np.bitwise_xor}
    if op == "premul_sum":
        parts = [(part * scalar).astype(dtype) for part in parts]
    result = functools.reduce(functions[op], parts)
    if op == "avg":
        result = result / len(parts) if dtype.kind in "fc" else result // len(parts)
    return np.asarray(result).astype(dtype)


def same(result, expected):
    result, expected = np.asarray(result), np.asarray(expected)
    assert result.dtype == expected.dtype, f"dtype {result.dtype}, not {expected.dtype}"
    assert result.shape == expected.shape, f"shape {result.shape}, not {expected.shape}"
    assert np.array_equal(result, expected), f"{result}\nis not\n{expected}"
