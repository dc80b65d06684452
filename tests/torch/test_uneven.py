"""Parts of different sizes."""
import pytest
import torch
import torch.distributed as dist

from bodies import every_rank, ramp, tutti_only


def counts_of(size):
    """Row r: what rank r sends to each rank; with zeros in it."""
    return [[(3 * source + 2 * to) % 5 for to in range(size)] for source in range(size)]


@tutti_only
@every_rank(1, 2, 3, 4)
def test_all_gather_of_uneven_parts(me):
    sizes = [(3 * rank + 1) % 7 for rank in range(me.size)]
    parts = [torch.zeros(count) for count in sizes]
    dist.all_gather(parts, ramp(me.rank, sizes[me.rank]))
    for rank, part in enumerate(parts):
        assert torch.equal(part, ramp(rank, sizes[rank]))


@every_rank(1, 2, 3, 4)
def test_all_to_all_single_with_uneven_splits(me):
    counts = counts_of(me.size)
    sends, receives = counts[me.rank], [row[me.rank] for row in counts]
    given = torch.cat([ramp(10 * me.rank + to, count) for to, count in enumerate(sends)])
    got = torch.zeros(sum(receives))
    dist.all_to_all_single(got, given, receives, sends)
    assert torch.equal(got, torch.cat([ramp(10 * source + me.rank, count)
                                       for source, count in enumerate(receives)]))


@every_rank(2, 3)
def test_splits_count_rows_not_elements(me):
    counts = counts_of(me.size)
    sends, receives = counts[me.rank], [row[me.rank] for row in counts]
    given = torch.full((sum(sends), 3), float(me.rank))
    got = torch.full((sum(receives), 3), -1.0)
    dist.all_to_all_single(got, given, receives, sends)
    expected = torch.cat([torch.full((count, 3), float(source))
                          for source, count in enumerate(receives)])
    assert torch.equal(got, expected)


@tutti_only
@every_rank(1, 2, 3, 4)
def test_all_to_all_with_lists_of_uneven_parts(me):
    counts = counts_of(me.size)
    given = [ramp(10 * me.rank + to, count) for to, count in enumerate(counts[me.rank])]
    got = [torch.zeros(row[me.rank]) for row in counts]
    dist.all_to_all(got, given)
    for source, part in enumerate(got):
        assert torch.equal(part, ramp(10 * source + me.rank, counts[source][me.rank]))


@tutti_only
@every_rank(2, 3)
def test_reduce_scatter_of_uneven_parts(me):
    sizes = [2 * rank + 1 for rank in range(me.size)]
    parts = [ramp(me.rank, count) for count in sizes]
    mine = torch.zeros(sizes[me.rank])
    dist.reduce_scatter(mine, parts)
    assert torch.equal(mine, sum(ramp(rank, sizes[me.rank]) for rank in range(me.size)))


@tutti_only  # gloo of torch 1.13 finds out on another thread
@every_rank(2)
def test_splits_that_do_not_add_up_are_refused(me):
    with pytest.raises((RuntimeError, ValueError)):
        dist.all_to_all_single(torch.zeros(4), torch.zeros(4), [1, 1], [3, 3])
    dist.barrier()
