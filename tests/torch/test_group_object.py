"""The process group's own methods, as libraries call them: lists, options, futures, refusals."""
import pytest
import torch
import torch.distributed as dist

from bodies import every_rank, ramp, tutti_only

MANY = 400  # operations under way at once


def world():
    return dist.distributed_c10d._get_default_group()


def options(kind, **values):
    made = getattr(dist, f"{kind}Options")() if hasattr(dist, f"{kind}Options") else \
        getattr(dist.distributed_c10d, f"{kind}Options")()
    for name, value in values.items():
        setattr(made, name, value)
    return made


def value_of(work):
    future = work.get_future()
    future.wait()
    return future.value()


@every_rank(1, 2, 3)
def test_futures_hold_the_results(me):
    group = world()
    assert torch.equal(value_of(group.allreduce(torch.ones(3)))[0], torch.full((3,), float(me.size)))
    assert torch.equal(value_of(group.broadcast(torch.tensor([me.rank + 1.0]), root=0))[0],
                       torch.ones(1))
    parts = [[torch.zeros(2) for _ in range(me.size)]]
    gathered = value_of(group.allgather(parts, [ramp(me.rank, 2)]))
    assert all(torch.equal(part, ramp(rank, 2)) for rank, part in enumerate(gathered))
    for root in range(me.size):
        result = value_of(group.reduce([torch.ones(2)], options("Reduce", rootRank=root)))
        if root == me.rank:
            assert result[0][0].item() == me.size


@every_rank(1, 2, 3)
def test_futures_of_rooted_operations(me):
    group = world()
    for root in range(me.size):
        given = [[ramp(rank, 2) for rank in range(me.size)]] if me.rank == root else []
        got = value_of(group.scatter([torch.zeros(2)], given, options("Scatter", rootRank=root)))
        assert torch.equal(got[0], ramp(me.rank, 2))
        places = [[torch.zeros(2) for _ in range(me.size)]] if me.rank == root else []
        got = value_of(group.gather(places, [ramp(me.rank, 2)], options("Gather", rootRank=root)))
        if me.rank == root:
            assert all(torch.equal(part, ramp(rank, 2)) for rank, part in enumerate(got))


@every_rank(1, 2, 3)
@pytest.mark.parametrize("op", ["SUM", "MAX"])
def test_several_tensors_a_rank_are_reduced_as_one_set(me, op):
    tensors = [ramp(2 * me.rank + which, 5) for which in range(2)]
    results = value_of(world().allreduce(tensors, options("Allreduce",
                                                          reduceOp=getattr(dist.ReduceOp, op))))
    everything = [ramp(number, 5) for number in range(2 * me.size)]
    expected = sum(everything) if op == "SUM" else everything[-1]
    assert len(results) == 2
    assert all(torch.equal(tensor, expected) for tensor in (*results, *tensors))


@every_rank(1, 2, 3)
def test_broadcast_of_one_of_several_tensors(me):
    for root in range(me.size):
        for which in range(2):
            tensors = [torch.full((3,), 2.0 * me.rank), torch.full((3,), 2.0 * me.rank + 1)]
            results = value_of(world().broadcast(
                tensors, options("Broadcast", rootRank=root, rootTensor=which)))
            assert all(tensor[0].item() == 2 * root + which for tensor in (*results, *tensors))


@every_rank(1, 2, 3)
@pytest.mark.parametrize("count", [1, 2, 3])
def test_all_gather_of_several_tensors_a_rank(me, count):
    given = [torch.tensor([count * me.rank + which]) for which in range(count)]
    places = [[torch.tensor([-1]) for _ in range(count * me.size)] for _ in range(count)]
    world().allgather(places, given).wait()
    for part in places:
        assert [tensor.item() for tensor in part] == list(range(count * me.size))


@every_rank(2, 3)
def test_one_tensor_twice_in_a_coalesced_call(me):
    tensor = torch.tensor([me.rank + 1])
    results = value_of(world().allreduce_coalesced([tensor, tensor]))
    assert [result.item() for result in results] == [sum(range(1, me.size + 1))] * 2


@every_rank(2, 3)
def test_many_reductions_under_way(me):
    tensors = [torch.tensor([step + me.rank]) for step in range(MANY)]
    futures = [world().allreduce(tensor).get_future() for tensor in tensors]
    for step, future in enumerate(futures):
        future.wait()
        assert future.value()[0].item() == step * me.size + sum(range(me.size))


@every_rank(2, 3)
def test_many_rooted_operations_under_way(me):
    group, futures = world(), []
    for step in range(MANY):
        root = step % me.size
        futures.append(group.broadcast(torch.tensor([step + me.rank]), root=root).get_future())
        given = [[torch.tensor([step + to]) for to in range(me.size)]] if me.rank == root else []
        futures.append(group.scatter([torch.tensor([-1])], given,
                                     options("Scatter", rootRank=root)).get_future())
        futures.append(group.reduce([torch.tensor([step])], options("Reduce", rootRank=root)).get_future())
    for number, future in enumerate(futures):
        future.wait()
        step, kind = divmod(number, 3)
        got = future.value()[0].item()
        if kind == 0:
            assert got == step + step % me.size
        elif kind == 1:
            assert got == step + me.rank
        elif step % me.size == me.rank:
            assert got == step * me.size


@every_rank(2, 3)
def test_many_gathers_under_way(me):
    group, kept = world(), []
    for step in range(MANY):
        places = [[torch.tensor([-1]) for _ in range(me.size)]]
        kept.append((places[0], group.allgather(places, [torch.tensor([step + me.rank])])))
    for step, (places, work) in enumerate(kept):
        work.wait()
        assert [place.item() for place in places] == [step + rank for rank in range(me.size)]


@every_rank(2, 3)
def test_a_barrier_waits_for_what_was_started_before(me):
    tensors = [torch.full((100, 100), float(number)) for number in range(16)]
    for tensor in tensors:
        world().allreduce(tensor)  # nobody keeps the Work
    world().barrier().get_future().wait()
    for number, tensor in enumerate(tensors):
        assert torch.equal(tensor, torch.full((100, 100), float(number * me.size)))


@every_rank(2)
def test_messages_by_the_groups_own_methods(me):
    group, got = world(), torch.zeros(2)
    sent = group.send([ramp(me.rank, 2)], me.next, 3)
    received = group.recv([got], me.previous, 3)
    assert sent.wait() and received.wait()
    assert sent.is_completed() and received.is_completed()
    assert torch.equal(got, ramp(me.previous, 2))


@tutti_only  # gloo of torch 1.13 writes on another thread, outside of the mode
@every_rank(2)
def test_inference_mode(me):
    with torch.inference_mode():
        tensor = ramp(me.rank, 4)
        dist.all_reduce(tensor)
        parts = [[torch.zeros(4) for _ in range(me.size)]]
        world().allgather(parts, [tensor]).wait()
    assert torch.equal(parts[0][0], ramp(0, 4) + ramp(1, 4))


@every_rank(2, 3)
def test_half_precision_near_its_limit(me):
    torch.manual_seed(me.rank)
    tensor = ((torch.rand(50) * 2 - 1) * 65504 / me.size).to(torch.float16)
    parts = [torch.zeros_like(tensor) for _ in range(me.size)]
    dist.all_gather(parts, tensor)
    dist.all_reduce(tensor)
    exact = torch.stack(parts).double().sum(dim=0)
    assert torch.allclose(tensor.double(), exact, rtol=2e-3, atol=64)


@tutti_only
@every_rank(2, 3)
def test_parts_of_every_size_from_zero(me):
    given = [torch.arange(float(count)) for count in range(me.size)]
    mine = torch.empty(me.rank)
    dist.reduce_scatter(mine, given)
    assert torch.equal(mine, torch.arange(float(me.rank)) * me.size)


REFUSED = [
    ("invalid root rank", lambda g, t: g.broadcast([t.one], options("Broadcast", rootRank=-1))),
    ("invalid root rank", lambda g, t: g.broadcast([t.one], options("Broadcast", rootRank=99))),
    ("invalid root tensor", lambda g, t: g.broadcast([t.one], options("Broadcast", rootRank=0, rootTensor=1))),
    ("invalid root tensor", lambda g, t: g.broadcast([t.one], options("Broadcast", rootRank=0, rootTensor=-1))),
    ("invalid tensor type", lambda g, t: g.broadcast([t.one, t.double], options("Broadcast"))),
    ("invalid tensor size", lambda g, t: g.broadcast([t.one, t.two], options("Broadcast"))),
    ("requires non-empty tensor list", lambda g, t: g.allreduce([], options("Allreduce"))),
    ("invalid tensor type", lambda g, t: g.allreduce([t.one, t.double], options("Allreduce"))),
    ("invalid tensor size", lambda g, t: g.allreduce([t.one, t.two], options("Allreduce"))),
    ("invalid root rank", lambda g, t: g.reduce([t.one], options("Reduce", rootRank=-1))),
    ("invalid root tensor", lambda g, t: g.reduce([t.one], options("Reduce", rootRank=0, rootTensor=1))),
    ("requires a single-element tensor list", lambda g, t: g.reduce([t.one, t.one], options("Reduce"))),
    ("requires non-empty input tensor list", lambda g, t: g.allgather([], [])),
    ("requires input/output tensor lists to have the same length", lambda g, t: g.allgather([], [t.one])),
    ("invalid output tensor list", lambda g, t: g.allgather([[t.one] * (g.size() + 1)], [t.one])),
    ("invalid tensor type", lambda g, t: g.allgather([[t.double] * g.size()], [t.one])),
    ("invalid root rank", lambda g, t: g.scatter([t.one], [], options("Scatter", rootRank=-1))),
    ("requires a single-element output tensor list", lambda g, t: g.scatter([], [], options("Scatter"))),
    ("requires a single-element input list",
     lambda g, t: g.scatter([t.one], [], options("Scatter", rootRank=g.rank()))),
    ("Incorrect input list size",
     lambda g, t: g.scatter([t.one], [[t.one] * (g.size() + 1)], options("Scatter", rootRank=g.rank()))),
    ("invalid tensor type",
     lambda g, t: g.scatter([t.one], [[t.double] * g.size()], options("Scatter", rootRank=g.rank()))),
    ("invalid tensor size",
     lambda g, t: g.scatter([t.one], [[t.two] * g.size()], options("Scatter", rootRank=g.rank()))),
    ("requires empty input on non-root",
     lambda g, t: g.scatter([t.one], [[t.one] * g.size()], options("Scatter", rootRank=1 - g.rank()))),
    ("invalid root rank", lambda g, t: g.gather([], [t.one], options("Gather", rootRank=-1))),
    ("requires a single-element input tensor list", lambda g, t: g.gather([], [], options("Gather"))),
    ("requires a single-element output list",
     lambda g, t: g.gather([], [t.one], options("Gather", rootRank=g.rank()))),
    ("Incorrect output list size",
     lambda g, t: g.gather([[t.one] * (g.size() + 1)], [t.one], options("Gather", rootRank=g.rank()))),
    ("invalid tensor size",
     lambda g, t: g.gather([[t.two] * g.size()], [t.one], options("Gather", rootRank=g.rank()))),
    ("requires empty output on non-root",
     lambda g, t: g.gather([[t.one] * g.size()], [t.one], options("Gather", rootRank=1 - g.rank()))),
    ("requires non-empty tensor list",
     lambda g, t: g.allreduce_coalesced([], options("AllreduceCoalesced"))),
    ("tensors must all have the same type",
     lambda g, t: g.allreduce_coalesced([t.one, t.double], options("AllreduceCoalesced"))),
]


class Tensors:
    one, two, double = torch.zeros(1), torch.zeros(2), torch.zeros(1, dtype=torch.float64)


@every_rank(2)
@pytest.mark.parametrize("number", range(len(REFUSED)), ids=[words for words, _ in REFUSED])
def test_refusals_are_torchs_words_and_leave_the_group_intact(me, number):
    words, call = REFUSED[number]
    # torch 2 itself refuses calls without a tensor.
    with pytest.raises((RuntimeError, ValueError), match=words + "|no tensor arguments"):
        call(world(), Tensors)
    check = torch.ones(1)
    dist.all_reduce(check)
    assert check.item() == me.size
