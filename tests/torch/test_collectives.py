"""Each collective on ordinary tensors: every root, every size of world."""
import pytest
import torch
import torch.distributed as dist

from bodies import every_rank, ramp, tutti_only

COUNTS = [1, 2, 5, 1000, 65537]


def total(size, count, dtype=torch.float32):
    return sum(ramp(rank, count, dtype) for rank in range(size))


@every_rank(1, 2, 3, 4)
def test_rank_and_size_are_as_given(me):
    assert (dist.get_rank(), dist.get_world_size()) == (me.rank, me.size)
    assert dist.get_backend() == me.backend
    assert dist.is_initialized()


@every_rank(1, 2, 3, 4)
@pytest.mark.parametrize("count", COUNTS)
def test_all_reduce_sums(me, count):
    tensor = ramp(me.rank, count)
    assert dist.all_reduce(tensor) is None
    assert torch.equal(tensor, total(me.size, count))


@every_rank(1, 2, 3, 4)
@pytest.mark.parametrize("count", COUNTS)
def test_broadcast_from_every_root(me, count):
    for root in range(me.size):
        tensor = ramp(root, count) if me.rank == root else torch.zeros(count)
        dist.broadcast(tensor, src=root)
        assert torch.equal(tensor, ramp(root, count))


@every_rank(1, 2, 3, 4)
@pytest.mark.parametrize("count", COUNTS)
def test_reduce_to_every_root_leaves_the_others_alone(me, count):
    for root in range(me.size):
        tensor = ramp(me.rank, count)
        dist.reduce(tensor, dst=root)
        if me.rank == root:
            assert torch.equal(tensor, total(me.size, count))


@tutti_only  # gloo uses the others' tensors as scratch
@every_rank(2, 3, 4)
def test_reduce_does_not_write_on_other_ranks(me):
    tensor = ramp(me.rank, 1000)
    dist.reduce(tensor, dst=1)
    assert torch.equal(tensor, total(me.size, 1000) if me.rank == 1 else ramp(me.rank, 1000))


@every_rank(1, 2, 3, 4)
@pytest.mark.parametrize("count", COUNTS)
def test_all_gather_into_a_list(me, count):
    parts = [torch.zeros(count) for _ in range(me.size)]
    dist.all_gather(parts, ramp(me.rank, count))
    for rank, part in enumerate(parts):
        assert torch.equal(part, ramp(rank, count))


@every_rank(1, 2, 3, 4)
@pytest.mark.parametrize("count", COUNTS)
def test_gather_to_every_root(me, count):
    for root in range(me.size):
        parts = [torch.zeros(count) for _ in range(me.size)] if me.rank == root else None
        dist.gather(ramp(me.rank, count), parts, dst=root)
        if me.rank == root:
            for rank, part in enumerate(parts):
                assert torch.equal(part, ramp(rank, count))


@every_rank(1, 2, 3, 4)
@pytest.mark.parametrize("count", COUNTS)
def test_scatter_from_every_root(me, count):
    for root in range(me.size):
        parts = [ramp(rank, count) for rank in range(me.size)] if me.rank == root else None
        mine = torch.zeros(count)
        dist.scatter(mine, parts, src=root)
        assert torch.equal(mine, ramp(me.rank, count))


@tutti_only
@every_rank(1, 2, 3, 4)
@pytest.mark.parametrize("count", COUNTS)
def test_reduce_scatter_of_a_list(me, count):
    parts = [ramp(me.rank + part, count) for part in range(me.size)]
    mine = torch.zeros(count)
    dist.reduce_scatter(mine, parts)
    assert torch.equal(mine, sum(ramp(rank + me.rank, count) for rank in range(me.size)))


@tutti_only
@every_rank(1, 2, 3, 4)
@pytest.mark.parametrize("count", COUNTS)
def test_all_to_all_of_lists(me, count):
    given = [ramp(10 * me.rank + to, count) for to in range(me.size)]
    got = [torch.zeros(count) for _ in range(me.size)]
    dist.all_to_all(got, given)
    for source, part in enumerate(got):
        assert torch.equal(part, ramp(10 * source + me.rank, count))


@every_rank(1, 2, 3, 4)
@pytest.mark.parametrize("count", COUNTS)
def test_all_to_all_single_equal_splits(me, count):
    given = torch.cat([ramp(10 * me.rank + to, count) for to in range(me.size)])
    got = torch.zeros(count * me.size)
    dist.all_to_all_single(got, given)
    assert torch.equal(got, torch.cat([ramp(10 * source + me.rank, count)
                                       for source in range(me.size)]))


@tutti_only
@every_rank(1, 2, 3, 4)
@pytest.mark.parametrize("count", COUNTS)
def test_gather_and_reduce_through_one_tensor(me, count):
    gathered = torch.zeros(me.size * count)
    dist.all_gather_into_tensor(gathered, ramp(me.rank, count))
    assert torch.equal(gathered, torch.cat([ramp(rank, count) for rank in range(me.size)]))
    mine = torch.zeros(count)
    dist.reduce_scatter_tensor(mine, gathered)
    assert torch.equal(mine, me.size * ramp(me.rank, count))


@tutti_only
@every_rank(2, 3)
def test_one_tensor_may_have_a_dimension_of_ranks(me):
    stacked = torch.zeros(me.size, 3, 2)
    dist.all_gather_into_tensor(stacked, torch.full((3, 2), float(me.rank)))
    assert torch.equal(stacked[:, 0, 0], torch.arange(me.size, dtype=torch.float32))
    mine = torch.zeros(3, 2)
    dist.reduce_scatter_tensor(mine, stacked)
    assert torch.equal(mine, torch.full((3, 2), float(me.rank * me.size)))


@every_rank(1, 2, 3, 4)
def test_barrier_holds_everybody_until_the_last_has_come(me):
    for last in range(me.size):
        if me.rank == last:
            open(f"{me.folder}/here_{last}", "w").close()
        dist.barrier()
        import os
        assert os.path.exists(f"{me.folder}/here_{last}")
        dist.barrier()
        if me.rank == last:
            os.unlink(f"{me.folder}/here_{last}")


@every_rank(2, 4)
def test_many_small_calls_in_a_row_stay_in_step(me):
    for step in range(300):
        tensor = torch.full((3,), float(me.rank + step))
        dist.all_reduce(tensor)
        assert tensor[0].item() == me.size * step + sum(range(me.size))


@every_rank(2, 4)
def test_shapes_of_any_dimension(me):
    for shape in [(), (1,), (2, 3), (2, 1, 4), (1, 2, 3, 4, 5)]:
        tensor = torch.full(shape, float(me.rank + 1))
        dist.all_reduce(tensor)
        assert tensor.shape == shape
        assert torch.equal(tensor, torch.full(shape, float(sum(range(1, me.size + 1)))))


@every_rank(2)
def test_sixteen_mebibytes(me):
    tensor = torch.full((4 << 20,), float(me.rank + 1))
    dist.all_reduce(tensor)
    assert torch.equal(tensor, torch.full_like(tensor, 3.0))
