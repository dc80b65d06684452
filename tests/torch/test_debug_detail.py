"""TORCH_DISTRIBUTED_DEBUG=DETAIL: torch's extra checks work on top."""
import os

import torch
import torch.distributed as dist

from bodies import tutti_only
from test_timeouts_errors import caught, check

DETAIL = {"TORCH_DISTRIBUTED_DEBUG": "DETAIL"}


def in_detail(me, body, **arguments):
    """The level was read when torch was imported: read it again, and join."""
    dist.set_debug_level_from_env()
    assert dist.get_debug_level() == dist.DebugLevel.DETAIL
    dist.init_process_group(me.backend, init_method=f"file://{me.folder}/store", rank=me.rank,
                            world_size=me.size)
    answer = globals()[body](me, **arguments)
    return answer


def several_collectives(me):
    tensor = torch.ones(4)
    dist.all_reduce(tensor)
    dist.broadcast(tensor, 0)
    parts = [torch.zeros(4) for _ in range(me.size)]
    dist.all_gather(parts, tensor)
    dist.barrier()
    work = dist.all_reduce(tensor, async_op=True)
    work.wait()
    group = dist.new_group()
    dist.all_reduce(tensor, group=group)
    if me.rank == 0:
        dist.send(tensor, dst=1)
    elif me.rank == 1:
        dist.recv(tensor, src=0)
    return tensor.tolist(), [part.tolist() for part in parts]


def test_collectives_work(lone_ranks):
    ranks = lone_ranks(2, DETAIL)
    assert ranks.run(in_detail, {"body": "several_collectives"}) == \
        [([8.0] * 4, [[2.0] * 4] * 2)] * 2


def mismatch(me):
    if me.rank == 0:
        return caught(lambda: dist.all_reduce(torch.ones(4)))
    return caught(lambda: dist.all_reduce(torch.ones(5)))


def test_a_mismatch_is_reported_on_every_rank(lone_ranks):
    for answer in lone_ranks(2, DETAIL).run(in_detail, {"body": "mismatch"}):
        check(answer)


def train(me):
    from torch.nn.parallel import DistributedDataParallel
    torch.manual_seed(1)
    model = DistributedDataParallel(torch.nn.Linear(4, 2))
    for _ in range(3):
        model(torch.ones(2, 4) * (me.rank + 1)).sum().backward()
    return model.module.weight.grad.sum().item()


def test_ddp_trains(lone_ranks):
    first, second = lone_ranks(2, DETAIL).run(in_detail, {"body": "train"})
    assert first == second and first != 0
