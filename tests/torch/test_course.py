"""The programs of a first course in torch.distributed print what is documented for them."""
import contextlib
import io
import os
import sys

import pytest
import torch
import torch.distributed as dist

from bodies import every_rank, tutti_only

sys.path.insert(0, os.path.join(os.path.dirname(__file__), "programs"))
import course  # noqa: E402

FIVE = {value: f"tensor([{value}., {value}., {value}., {value}., {value}.])" for value in (0, 1, 2, 3, 6)}
LIST = f"[{FIVE[1]}, {FIVE[2]}, {FIVE[3]}]"
# What rank r prints, of three; None: nothing.
DOCUMENTED = {
    "broadcast": lambda r: [
        f"Before broadcast on rank {r}: " + ("tensor([1., 2., 3., 4., 5.])" if r == 0 else FIVE[0]),
        f"After broadcast on rank {r}: tensor([1., 2., 3., 4., 5.])"],
    "two_broadcasts": lambda r: [
        f"Rank {r} after the first: tensor([1., 2., 3., 4., 5.]) " +
        ("tensor([10., 20., 30.])" if r == 1 else "tensor([0., 0., 0.])"),
        f"Rank {r} after the second: tensor([1., 2., 3., 4., 5.]) tensor([10., 20., 30.])"],
    "reduce": lambda r: [f"Before reduce on rank {r}: {FIVE[r + 1]}",
                         f"After reduce on rank {r}: {FIVE[6 if r == 0 else r + 1]}"],
    "all_reduce": lambda r: [f"Before all_reduce on rank {r}: {FIVE[r + 1]}",
                             f"After all_reduce on rank {r}: {FIVE[6]}"],
    "gather": lambda r: [f"Before gather on rank {r}: {FIVE[r + 1]}"] +
                        ([f"After gather on rank 0: {LIST}"] if r == 0 else []),
    "all_gather": lambda r: [f"Before all_gather on rank {r}: {FIVE[r + 1]}",
                             f"After all_gather on rank {r}: {LIST}"],
    "scatter": lambda r: ([f"Rank 0: tensors to scatter: {LIST}"] if r == 0 else []) +
                         [f"Before scatter on rank {r}: {FIVE[0]}",
                          f"After scatter on rank {r}: {FIVE[r + 1]}"],
    "reduce_scatter": lambda r: [
        f"Before reduce_scatter on rank {r}: " +
        ["[tensor([1., 2.]), tensor([1., 4.]), tensor([1., 8.])]",
         "[tensor([2., 4.]), tensor([ 4., 16.]), tensor([ 8., 64.])]",
         "[tensor([3., 6.]), tensor([ 9., 36.]), tensor([ 27., 216.])]"][r],
        f"After reduce_scatter on rank {r}: " +
        ["tensor([ 6., 12.])", "tensor([14., 56.])", "tensor([ 36., 288.])"][r]],
    "send_and_recv": lambda r: [[], ["Rank 1 received: tensor([100., 200.])"],
                                ["Rank 2 received: tensor([200., 400.])"]][r],
    "isend_and_irecv": lambda r: [[], ["Rank 1 received: tensor([100., 200.]) beside 499500"],
                                  ["Rank 2 received: tensor([200., 400.]) beside 499500"]][r],
    "gather_texts": lambda r: ["['rank 0 on cpu', 'rank 1 on cpu', 'rank 2 on cpu']"],
    "two_groups": lambda r: [f"Rank {r}: groups sum to [0.0, 3.0]"],
    "gather_and_reduce": lambda r: [
        f"Rank {r}: gathered [[0.0, 1.0], [10.0, 11.0], [20.0, 21.0]], summed [30.0, 33.0]"],
    "array_of_numbers": lambda r: [f"Rank {r}: [[3.0, 6.0, 9.0], [3.0, 6.0, 9.0]]"],
}
NOT_IN_GLOO = {"reduce_scatter"}
GLOO_SCRIBBLES = {"reduce"}  # on the tensors of ranks that are not the root


def printed_by(lesson):
    output = io.StringIO()
    with contextlib.redirect_stdout(output):
        getattr(course, lesson)()
    return output.getvalue().splitlines()


@every_rank(3)
@pytest.mark.parametrize("lesson", DOCUMENTED)
def test_prints_what_is_documented(me, lesson):
    if me.backend == "gloo" and lesson in NOT_IN_GLOO | GLOO_SCRIBBLES:
        pytest.skip("gloo does not do this")
    assert printed_by(lesson) == DOCUMENTED[lesson](me.rank)


@every_rank(3)
def test_everybody_leaves_the_barrier_after_the_last_has_come(me):
    line, = printed_by("barrier")
    assert float(line.split(": ")[1]) >= 0.2


@every_rank(4)
def test_groups_of_four_ranks(me):
    assert printed_by("two_groups") == [f"Rank {me.rank}: groups sum to [1.0, 5.0]"]


@every_rank(2, 3)
def test_softmax_and_norm_over_ranks(me):
    line, = printed_by("softmax_and_norm")
    table = torch.stack([torch.arange(3.0) + rank + 1 for rank in range(me.size)])
    expected = (f"Rank {me.rank}: weighted {(table * torch.tensor([0.3, 0.3, 0.4])).sum(0)}, "
                f"softmax {torch.softmax(table, dim=0)[me.rank]}, "
                f"normalised {(table / table.norm(dim=0))[me.rank]}")
    assert line == expected


@every_rank(2, 3)
def test_the_toy_model_has_one_set_of_weights(me):
    line, = printed_by("toy_training")
    lines = [None] * me.size
    dist.all_gather_object(lines, line.split(": ")[1])
    assert len(set(lines)) == 1


@tutti_only
@every_rank(2)
def test_numpy_arrays_ride_along(me):
    """A numpy array that shares its memory with a tensor is reduced in place."""
    numpy = pytest.importorskip("numpy")
    array = numpy.array([[1, 2, 3], [1, 2, 3]], dtype=numpy.float32)
    dist.all_reduce(torch.from_numpy(array))
    assert (array == numpy.array([[2, 4, 6], [2, 4, 6]], dtype=numpy.float32)).all()
