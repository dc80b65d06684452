"""ZeroRedundancyOptimizer: sharded state, the weights of the unsharded optimizer."""
import pytest
import torch
import torch.distributed as dist

import training
from bodies import every_rank

zero = pytest.importorskip("torch.distributed.optim").ZeroRedundancyOptimizer


def sharded(parameters, **options):
    return zero(parameters, optimizer_class=torch.optim.AdamW, lr=1e-2, **options)


def whole(parameters):
    return torch.optim.AdamW(parameters, lr=1e-2)


@every_rank(1, 2, 3)
@pytest.mark.parametrize("options", [{}, {"parameters_as_bucket_view": True}],
                         ids=["plain", "bucket_view"])
def test_weights_are_those_of_the_unsharded_optimizer(me, options):
    losses, model = training.train(me.rank, optimizer=lambda p: sharded(p, **options))
    expected, _ = training.train(me.rank, optimizer=whole)
    assert training.close(losses, expected, 1e-6)
    assert len(set(training.digests(model))) == 1


@every_rank(2)
def test_state_can_be_gathered_on_one_rank(me):
    torch.manual_seed(7)
    model = torch.nn.parallel.DistributedDataParallel(training.Toy())
    optimizer = sharded(model.parameters())
    for step in range(2):
        training.one_step(me.rank, model, step, 1)
        optimizer.step()
        optimizer.zero_grad()
    optimizer.consolidate_state_dict(to=0)
    if me.rank == 0:
        state = optimizer.state_dict()
        assert len(state["state"]) == len(list(model.parameters()))
    dist.barrier()


@every_rank(2)
def test_the_optimizer_overlaps_with_ddp(me):
    from torch.distributed.algorithms.ddp_comm_hooks import ddp_zero_hook
    from torch.distributed.algorithms.ddp_comm_hooks.default_hooks import allreduce_hook
    if not hasattr(ddp_zero_hook, "hook_with_zero_step"):
        pytest.skip("this torch has no such hook")
    torch.manual_seed(7)
    model = torch.nn.parallel.DistributedDataParallel(training.Toy(), gradient_as_bucket_view=True,
                                                      static_graph=True)
    optimizer = zero(model.parameters(), optimizer_class=torch.optim.SGD, lr=0.1,
                     overlap_with_ddp=True)
    optimizer_hook = ddp_zero_hook.hook_with_zero_step
    try:
        model.register_comm_hook(None, optimizer_hook(allreduce_hook, model, optimizer))
    except RuntimeError as refusal:  # torch allows it for its own backends alone
        pytest.skip(str(refusal))
    for step in range(4):
        training.one_step(me.rank, model, step, 1)
        optimizer.step()
    assert len(set(training.digests(model))) == 1
