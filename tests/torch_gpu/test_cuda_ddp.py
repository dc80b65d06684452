"""DistributedDataParallel on CUDA: the weights that one process alone would get, by every kind of hook."""
import pytest
import torch
import torch.distributed as dist
from torch.distributed.algorithms.ddp_comm_hooks import default_hooks
from torch.nn.parallel import DistributedDataParallel

import models
import training
from bodies import every_rank
from gpu import ON_GPU, expect, needs_gpu

OPTIONS = [{}, {"gradient_as_bucket_view": True}, {"static_graph": True}, {"find_unused_parameters": True},
           {"broadcast_buffers": False}]


def wrap(me, module, **options):
    return DistributedDataParallel(module, device_ids=[me.device] if ON_GPU else None, **options)


def expect_same_everywhere(model):
    """To the bit."""
    flat = torch.cat([parameter.detach().flatten() for parameter in model.parameters()])
    lowest, highest = flat.clone(), flat.clone()
    dist.all_reduce(lowest, op=dist.ReduceOp.MIN)
    dist.all_reduce(highest, op=dist.ReduceOp.MAX)
    expect(lowest, flat)
    expect(highest, flat)


@every_rank(2, 4)
@pytest.mark.parametrize("bucket_cap_mb", [25, 0.01], ids=["one_bucket", "several_buckets"])
@pytest.mark.parametrize("options", OPTIONS, ids=lambda options: next(iter(options), "plain"))
def test_weights_are_those_of_one_process(me, bucket_cap_mb, options):
    model = wrap(me, models.make(me.device), bucket_cap_mb=bucket_cap_mb, **options)
    models.train(model, me.device, me.rank)
    models.expect_weights(model.parameters(), models.train_alone(me).parameters())
    expect_same_everywhere(model)


@every_rank(2)
def test_accumulation_without_synchronisation(me):
    model, alone = wrap(me, models.make(me.device), bucket_cap_mb=0.01), models.make(me.device)
    for micro in range(3):
        if micro < 2:
            with model.no_sync():
                models.loss_of(model, me.device, me.rank, micro).backward()
        else:
            models.loss_of(model, me.device, me.rank, micro).backward()
        torch.stack([models.loss_of(alone, me.device, rank, micro) for rank in range(me.size)]).mean().backward()
    models.expect_weights([parameter.grad for parameter in model.parameters()],
                          [parameter.grad for parameter in alone.parameters()])


@every_rank(2)
def test_parameters_that_a_step_does_not_use(me):
    torch.manual_seed(5)
    model = wrap(me, training.Branches().to(me.device), find_unused_parameters=True)
    optimizer = models.sgd(model.parameters())
    for step in range(4):
        optimizer.zero_grad()
        model(torch.ones(2, 8, device=me.device) * (me.rank + 1), (step + me.rank) % 2).sum().backward()
        optimizer.step()
    expect_same_everywhere(model)


def scale_in_python(group, bucket):
    """Sums, then divides in a chain of callbacks."""
    future = dist.all_reduce(bucket.buffer(), group=group, async_op=True).get_future()
    return future.then(lambda done: done.value()[0]).then(lambda done: done.value() / dist.get_world_size(group))


def sum_twice(group, bucket):
    """A callback that starts a collective of its own, as sharding hooks do."""
    size = dist.get_world_size(group)
    future = dist.all_reduce(bucket.buffer(), group=group, async_op=True).get_future()

    def again(done):
        buffer = done.value()[0].div_(size * size)
        dist.all_reduce(buffer, group=group)
        return buffer
    return future.then(again)


HOOKS = {"plain": (default_hooks.allreduce_hook, 1e-3), "chain": (scale_in_python, 1e-3),
         "two_collectives": (sum_twice, 1e-3), "fp16": (default_hooks.fp16_compress_hook, 0.02),
         "bf16": (default_hooks.bf16_compress_hook, 0.1)}


@every_rank(2, 4)
@pytest.mark.parametrize("name", sorted(HOOKS))
def test_hooks(me, name):
    if name == "bf16" and not ON_GPU:
        pytest.skip("DDP keeps it for GPUs")
    hook, tolerance = HOOKS[name]
    model = wrap(me, models.make(me.device), bucket_cap_mb=0.01)
    model.register_comm_hook(None, hook)
    models.train(model, me.device, me.rank, steps=3)
    models.expect_weights(model.parameters(), models.train_alone(me, steps=3).parameters(), tolerance)
    expect_same_everywhere(model)


@every_rank(2, 4)
@pytest.mark.parametrize("wrapper", [None, "fp16_compress_wrapper"])
def test_power_sgd_on_several_buckets(me, wrapper):
    """Its first steps are plain; then what matters is that ranks agree, and that it learns."""
    power_sgd = pytest.importorskip("torch.distributed.algorithms.ddp_comm_hooks.powerSGD_hook")
    if wrapper and not ON_GPU:
        pytest.skip("the CPU cannot multiply halves")
    hook = getattr(default_hooks, wrapper)(power_sgd.powerSGD_hook) if wrapper else power_sgd.powerSGD_hook
    model = wrap(me, models.make(me.device), bucket_cap_mb=0.01)
    model.register_comm_hook(power_sgd.PowerSGDState(None, matrix_approximation_rank=2, start_powerSGD_iter=2), hook)
    before = models.loss_of(model, me.device, me.rank, 0).item()
    models.train(model, me.device, me.rank, steps=12)
    assert models.loss_of(model, me.device, me.rank, 0).item() < before
    expect_same_everywhere(model)


@every_rank(2)
def test_builtin_hooks(me):
    for kind in (dist.BuiltinCommHookType.ALLREDUCE, dist.BuiltinCommHookType.FP16_COMPRESS):
        model = wrap(me, torch.nn.Linear(10, 4).to(me.device))
        model._register_builtin_comm_hook(kind)
        model(torch.ones(2, 10, device=me.device) * (me.rank + 1)).sum().backward()
        expected = torch.full((4, 10), 2 * sum(range(1, me.size + 1)) / me.size, device=me.device)
        assert torch.allclose(model.module.weight.grad, expected, rtol=1e-3)


@every_rank(2)
def test_buffers_come_from_the_first_rank(me):
    torch.manual_seed(me.rank)
    model = wrap(me, torch.nn.Sequential(torch.nn.Linear(4, 4), torch.nn.BatchNorm1d(4)).to(me.device))
    for _ in range(2):
        model(torch.randn(8, 4, device=me.device) + me.rank).sum().backward()
    model.eval()
    model(torch.randn(8, 4, device=me.device))
    mean = model.module[1].running_mean
    first = mean.clone()
    dist.broadcast(first, 0)
    expect(mean, first)


@needs_gpu
@every_rank(2)
def test_synchronised_batch_norm(me):
    torch.manual_seed(1)
    whole = torch.randn(8 * me.size, 4, device=me.device)
    norm = torch.nn.SyncBatchNorm(4).to(me.device)
    alone = torch.nn.BatchNorm1d(4).to(me.device)
    mine = norm(whole[8 * me.rank:8 * me.rank + 8])
    wanted = alone(whole)[8 * me.rank:8 * me.rank + 8]
    assert torch.allclose(mine, wanted, atol=1e-5), (mine - wanted).abs().max()
