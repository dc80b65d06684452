"""send, recv, isend, irecv, any source, tags, batches."""
import pytest
import torch
import torch.distributed as dist

from bodies import every_rank, ramp, tutti_only


@every_rank(2, 3, 4)
def test_a_value_goes_round_the_ring(me):
    tensor = torch.zeros(5)
    if me.rank == 0:
        dist.send(ramp(3, 5), dst=me.next)
        source = dist.recv(tensor, src=me.previous)
    else:
        source = dist.recv(tensor, src=me.previous)
        dist.send(tensor, dst=me.next)
    assert source == me.previous
    assert torch.equal(tensor, ramp(3, 5))


@every_rank(2, 3)
@pytest.mark.parametrize("count", [1, 1000, 300_000])
def test_isend_and_irecv_cross(me, count):
    got = torch.zeros(count)
    works = [dist.isend(ramp(me.rank, count), dst=me.next), dist.irecv(got, src=me.previous)]
    for work in works:
        work.wait()
    assert all(work.is_completed() for work in works)
    assert torch.equal(got, ramp(me.previous, count))


@every_rank(2)
def test_messages_of_one_pair_keep_their_order(me):
    if me.rank == 0:
        for value in range(50):
            dist.send(torch.full((4,), float(value)), dst=1)
    else:
        for value in range(50):
            got = torch.zeros(4)
            dist.recv(got, src=0)
            assert got[0].item() == value


@every_rank(2)
def test_tags_choose_the_message(me):
    if me.rank == 0:
        works = [dist.isend(torch.full((4,), float(tag)), dst=1, tag=tag) for tag in (1, 2, 3)]
    else:
        buffers = {tag: torch.zeros(4) for tag in (3, 1, 2)}
        works = [dist.irecv(buffers[tag], src=0, tag=tag) for tag in buffers]
    for work in works:
        work.wait()
    if me.rank == 1:
        assert {tag: int(buffer[0]) for tag, buffer in buffers.items()} == {1: 1, 2: 2, 3: 3}


@every_rank(2, 3, 4)
def test_recv_from_any_source_tells_who_sent(me):
    if me.rank == 0:
        seen = {}
        for _ in range(me.size - 1):
            got = torch.zeros(3)
            source = dist.recv(got)
            seen[source] = got[0].item()
        assert seen == {rank: float(rank) for rank in range(1, me.size)}
    else:
        dist.send(torch.full((3,), float(me.rank)), dst=0)
    dist.barrier()


@every_rank(3)
def test_any_source_in_a_group_tells_the_global_rank(me):
    group = dist.new_group([1, 2])
    if me.rank == 2:
        dist.send(torch.full((2,), 7.0), dst=1, group=group)
    elif me.rank == 1:
        got = torch.zeros(2)
        assert dist.recv(got, group=group) == 2
        assert got[0].item() == 7.0
    dist.barrier()


@every_rank(2, 3, 4)
def test_batch_of_sends_and_receives(me):
    got = torch.zeros(100)
    batch = [dist.P2POp(dist.isend, ramp(me.rank, 100), me.next),
             dist.P2POp(dist.irecv, got, me.previous)]
    for work in dist.batch_isend_irecv(batch):
        work.wait()
    assert torch.equal(got, ramp(me.previous, 100))


@every_rank(3, 4)
def test_batch_to_both_neighbours(me):
    got = [torch.zeros(100) for _ in range(2)]
    batch = [dist.P2POp(dist.irecv, got[0], me.previous), dist.P2POp(dist.irecv, got[1], me.next),
             dist.P2POp(dist.isend, ramp(me.rank, 100), me.next),
             dist.P2POp(dist.isend, ramp(me.rank + 10, 100), me.previous)]
    for work in dist.batch_isend_irecv(batch):
        work.wait()
    assert torch.equal(got[0], ramp(me.previous, 100))
    assert torch.equal(got[1], ramp(me.next + 10, 100))


@every_rank(3)
def test_collectives_and_messages_do_not_disturb_each_other(me):
    got = torch.zeros(10)
    pending = dist.irecv(got, src=me.previous)
    total = torch.ones(10)
    dist.all_reduce(total)
    dist.send(ramp(me.rank, 10), dst=me.next)
    pending.wait()
    assert torch.equal(got, ramp(me.previous, 10))
    assert total[0].item() == me.size


@tutti_only  # gloo dies of it
@every_rank(1, 2)
def test_a_batch_may_send_to_oneself(me):
    got = torch.zeros(100)
    batch = [dist.P2POp(dist.irecv, got, me.rank), dist.P2POp(dist.isend, ramp(me.rank, 100), me.rank)]
    for work in dist.batch_isend_irecv(batch):
        work.wait()
    assert torch.equal(got, ramp(me.rank, 100))


@tutti_only
@every_rank(2)
def test_a_receive_knows_its_source(me):
    if me.rank == 0:
        dist.send(torch.ones(2), dst=1)
    else:
        work = dist.irecv(torch.zeros(2), src=0)
        work.wait()
        assert work._source_rank() == 0
    dist.barrier()
