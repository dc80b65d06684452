"""Every collective, for every type: what comes out, where it lies, and what stays as it was."""
import numpy as np
from values import COMPLEX, DTYPES, fold, ops_for, same, values

import tutti


def everyones(group, shape, dtype, op="sum"):
    return [values(rank, shape, dtype, op) for rank in range(group.size)]


def each_fold(group):
    for dtype in DTYPES:
        for op in ops_for(dtype):
            inputs = everyones(group, (3, 5), dtype, op)
            yield op, inputs, fold(inputs, op, 2.0), {"scalar": 2.0} if op == "premul_sum" else {}


def check_all_reduce_folds_every_type_with_every_operation(group):
    for op, inputs, expected, more in each_fold(group):
        x = inputs[group.rank].copy()
        same(tutti.all_reduce(x, op, **more), expected)
        same(x, inputs[group.rank])  # only out is written
        out = np.empty_like(x)
        assert tutti.all_reduce(x, op, out=out, **more) is out
        same(out, expected)
        assert group.all_reduce(x, op, out=x, **more) is x
        same(x, expected)


def check_reduce_gives_the_root_the_fold_and_the_others_none(group):
    for root in range(group.size):
        for op, inputs, expected, more in each_fold(group):
            result = tutti.reduce(inputs[group.rank], op, root, **more)
            if group.rank == root:
                same(result, expected)
            else:
                assert result is None


def check_scans_fold_the_ranks_before(group):
    for op, inputs, _, more in each_fold(group):
        if op == "avg":
            continue
        same(tutti.scan(inputs[group.rank], op, **more), fold(inputs[:group.rank + 1], op, 2.0))
        result = tutti.exclusive_scan(inputs[group.rank], op, **more)
        if group.rank:
            same(result, fold(inputs[:group.rank], op, 2.0))
        else:
            same(result, np.zeros_like(inputs[0]))
    out = np.full(2, 7.0)
    tutti.exclusive_scan(np.ones(2), out=out)
    same(out, np.full(2, float(group.rank or 7)))


def check_narrow_floats_fold_into_f32_that_is_not_rounded(group):
    # 1 + 2**-11 has more digits than a float16: the sum shows whether it was rounded.
    x = np.full((group.size, 3), 2.0 ** -11, np.float16)
    x[:] += np.float16(group.rank == 0)
    narrow = [np.full(3, 2.0 ** -11 + (rank == 0), np.float16) for rank in range(group.size)]
    def sum_up_to(last):
        return np.cumsum([each.astype(np.float32) for each in narrow], axis=0,
                         dtype=np.float32)[last]
    out = np.empty(3, np.float32)
    assert tutti.all_reduce(x[0], out=out) is out
    same(out, sum_up_to(-1))
    for again in (tutti.all_reduce_async(x[0], out=out), tutti.reduce_scatter_async(x, out=out)):
        same(again.wait(), sum_up_to(-1))
    same(tutti.scan(x[0], out=out), sum_up_to(group.rank))
    result = tutti.reduce(x[0], root=group.size - 1, out=out)
    assert (result is out) == (group.rank == group.size - 1)
    same(out, sum_up_to(-1 if result is out else group.rank))  # elsewhere only looked at
    for wrong in (lambda: tutti.all_gather(x[0], out=np.empty(3 * group.size, np.float32)),
                  lambda: tutti.all_reduce(out, out=np.empty(3, np.float64)),
                  lambda: tutti.all_reduce(out, out=x[0])):
        try:
            wrong()
        except tutti.InvalidArgument as error:
            assert "dtype" in str(error)
        else:
            raise AssertionError("was not refused")


def check_broadcast_brings_the_roots_values(group):
    for root in range(group.size):
        for dtype in DTYPES:
            inputs = everyones(group, (4, 2), dtype)
            x = inputs[group.rank].copy()
            same(tutti.broadcast(x, root), inputs[root])
            same(x, inputs[group.rank])
            assert tutti.broadcast(x, root, out=x) is x
            same(x, inputs[root])
            y = inputs[group.rank].copy()
            tutti.broadcast(root=root, out=y)
            same(y, inputs[root])


def check_gathers_join_along_the_first_axis(group):
    for dtype in DTYPES:
        inputs = everyones(group, (2, 3), dtype)
        expected = np.concatenate(inputs)
        same(tutti.all_gather(inputs[group.rank]), expected)
        out = np.empty((group.size, 2, 3), dtype)
        assert tutti.all_gather(inputs[group.rank], out=out) is out
        same(out, np.stack(inputs))
        for root in range(group.size):
            result = tutti.gather(inputs[group.rank], root)
            assert (result is None) == (root != group.rank)
            if result is not None:
                same(result, expected)


def check_gathers_of_different_lengths(group):
    counts = [rank + 1 if rank != 1 else 0 for rank in range(group.size)]
    for dtype in ["i4", "f8", *COMPLEX]:
        inputs = [values(rank, (counts[rank], 3), dtype) for rank in range(group.size)]
        same(tutti.all_gather(inputs[group.rank], counts=counts), np.concatenate(inputs))
        root = group.size - 1
        result = tutti.gather(inputs[group.rank], root, counts=counts)
        if group.rank == root:
            same(result, np.concatenate(inputs))
        outs = [np.empty((count, 3), dtype) for count in counts]
        given = outs if group.rank == root else None
        assert tutti.gather(inputs[group.rank], root, out=given, counts=counts) is given
        if given is not None:
            same(np.concatenate(outs), np.concatenate(inputs))
        assert tutti.all_gather(inputs[group.rank], out=outs) is outs
        for out, part in zip(outs, inputs):
            same(out, part)


def check_scatter_cuts_the_first_axis(group):
    for root in range(group.size):
        for dtype in DTYPES:
            x = values(root, (2 * group.size, 3), dtype)
            mine = np.split(x, group.size)[group.rank]
            same(tutti.scatter(x, root), mine)
            out = np.empty((2, 3), dtype)
            given = x if group.rank == root else None
            assert tutti.scatter(given, root, out=out) is out
            same(out, mine)
            parts = np.split(x, group.size) if group.rank == root else None
            same(tutti.scatter(parts, root, out=np.empty((2, 3), dtype)), mine)


def check_scatter_of_different_lengths(group):
    counts = [rank + 1 for rank in range(group.size)]
    ends = np.cumsum(counts)
    for dtype in ["u2", *COMPLEX]:
        x = values(0, (int(ends[-1]), 2), dtype)
        mine = x[ends[group.rank] - counts[group.rank]:ends[group.rank]]
        out = np.empty((counts[group.rank], 2), dtype)
        same(tutti.scatter(x if group.rank == 0 else None, out=out, counts=counts), mine)
        same(tutti.scatter(x, counts=counts), mine)
        parts = np.split(x, ends[:-1]) if group.rank == 0 else None
        same(tutti.scatter(parts, out=np.empty_like(out), counts=counts), mine)


def check_reduce_scatter_folds_each_part(group):
    for dtype in DTYPES:
        for op in ops_for(dtype):
            more = {"scalar": 2.0} if op == "premul_sum" else {}
            inputs = everyones(group, (group.size * 2, 3), dtype, op)
            expected = np.split(fold(inputs, op, 2.0), group.size)[group.rank]
            x = inputs[group.rank].copy()
            same(tutti.reduce_scatter(x, op, **more), expected)
            same(tutti.reduce_scatter(np.split(x, group.size), op, **more), expected)
            own = np.split(x, group.size)[group.rank]
            assert tutti.reduce_scatter(x, op, out=own, **more) is own  # in place
            same(own, expected)


def check_reduce_scatter_of_different_lengths(group):
    counts = [rank + 1 for rank in range(group.size)]
    ends = np.cumsum(counts)
    for dtype in ["i8", "f4", *COMPLEX]:
        inputs = everyones(group, (int(ends[-1]), 2), dtype)
        expected = fold(inputs, "sum")[ends[group.rank] - counts[group.rank]:ends[group.rank]]
        same(tutti.reduce_scatter(inputs[group.rank], counts=np.array(counts)), expected)


def check_all_to_all_transposes_parts(group):
    for dtype in DTYPES:
        inputs = everyones(group, (group.size * 2, 3), dtype)
        expected = np.concatenate([np.split(x, group.size)[group.rank] for x in inputs])
        x = inputs[group.rank].copy()
        same(tutti.all_to_all(x), expected)
        assert tutti.all_to_all(x, out=x) is x
        same(x, expected)


def check_all_to_all_of_different_lengths(group):
    def cut(sender, receiver):  # the last rank sends nothing to the first
        return 0 if (sender, receiver) == (group.size - 1, 0) else sender + receiver + 1

    counts = [cut(group.rank, other) for other in range(group.size)]
    out_counts = [cut(other, group.rank) for other in range(group.size)]
    for dtype in ["i1", "f8", *COMPLEX]:
        def part(sender, receiver):
            return values(sender * 10 + receiver, (cut(sender, receiver), 2), dtype)

        mine = [part(group.rank, other) for other in range(group.size)]
        expected = [part(other, group.rank) for other in range(group.size)]
        same(tutti.all_to_all(np.concatenate(mine), counts=counts, out_counts=out_counts),
             np.concatenate(expected))
        outs = [np.empty((count, 2), dtype) for count in out_counts]
        assert tutti.all_to_all(mine, out=outs) is outs
        for out, wanted in zip(outs, expected):
            same(out, wanted)


def check_barrier_and_options(group):
    assert tutti.barrier() is None
    for algorithm in ["direct", "ring", "recursive_doubling"]:
        same(tutti.all_reduce(np.ones(9), algorithm=algorithm, timeout=30, name="try"),
             np.full(9, float(group.size)))


def check_the_array_that_every_worker_fills_with_its_own_number(group):
    # As in the page on pygloo: each worker has a small array, and all get the sum of all of them.
    send = np.full((2, 3), group.rank + 1, dtype=np.float32)
    recv = np.zeros_like(send)
    tutti.all_reduce(send, out=recv)
    same(recv, np.full((2, 3), group.size * (group.size + 1) / 2, dtype=np.float32))
