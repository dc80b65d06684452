"""What torch 2 builds on a backend: functional collectives, meshes, distributed tensors, sharded training."""
import pytest
import torch
import torch.distributed as dist

import models
from bodies import TORCH, every_rank, needs_torch_2, torch_at_least
from gpu import ON_GPU, expect, needs_gpu, ramp, ramps, total

pytestmark = needs_torch_2


def mesh_of(me, *shape, names=None):
    from torch.distributed.device_mesh import init_device_mesh
    return init_device_mesh(me.device.type, shape, mesh_dim_names=names)


@every_rank(2, 4)
def test_functional_collectives(me):
    import torch.distributed._functional_collectives as functional
    given = ramp(me, 12)
    expect(functional.wait_tensor(functional.all_reduce(given, "sum", dist.group.WORLD)), total(me, 12))
    expect(given, ramp(me, 12))  # not in place
    whole = functional.wait_tensor(functional.all_gather_tensor(given, 0, dist.group.WORLD))
    expect(whole, torch.cat(ramps(me, 12)))
    mine = functional.wait_tensor(functional.reduce_scatter_tensor(whole, "sum", 0, dist.group.WORLD))
    expect(mine, me.size * given)
    sent = torch.cat([ramp(me, 4, rank=10 * me.rank + to) for to in range(me.size)])
    got = functional.wait_tensor(functional.all_to_all_single(sent, None, None, dist.group.WORLD))
    expect(got, torch.cat([ramp(me, 4, rank=10 * source + me.rank) for source in range(me.size)]))


@torch_at_least(2, 3)
@every_rank(2)
def test_functional_coalesced(me):
    import torch.distributed._functional_collectives as functional
    given = [ramp(me, 3), ramp(me, 5)]
    for tensor, result in zip(given, functional.all_reduce_coalesced(given, "sum", dist.group.WORLD)):
        expect(functional.wait_tensor(result), total(me, len(tensor)))
    for tensor, whole in zip(given, functional.all_gather_into_tensor_coalesced(given, dist.group.WORLD)):
        expect(functional.wait_tensor(whole), torch.cat(ramps(me, len(tensor))))


@torch_at_least(2, 3)
@every_rank(4)
def test_a_mesh_of_two_dimensions(me):
    mesh = mesh_of(me, 2, 2, names=("rows", "columns"))
    for name, members in (("rows", {me.rank % 2, me.rank % 2 + 2}),
                          ("columns", {me.rank // 2 * 2, me.rank // 2 * 2 + 1})):
        tensor = torch.full((3,), float(me.rank), device=me.device)
        dist.all_reduce(tensor, group=mesh.get_group(name))
        assert tensor[0].item() == sum(members)
    dist.barrier()


@torch_at_least(2, 5)
@every_rank(2, 4)
def test_distributed_tensors(me):
    from torch.distributed.tensor import Replicate, Shard, distribute_tensor
    torch.manual_seed(1)
    whole = torch.randn(8, 12).to(me.device)
    mesh = mesh_of(me, me.size)
    sharded = distribute_tensor(whole, mesh, [Shard(0)])
    expect(sharded.full_tensor(), whole)
    expect(sharded.redistribute(mesh, [Shard(1)]).redistribute(mesh, [Replicate()]).to_local(), whole)
    product = (sharded.t() @ sharded).redistribute(mesh, [Replicate()]).to_local()
    assert torch.allclose(product, whole.t() @ whole, atol=1e-3)


@torch_at_least(2, 5)
@every_rank(2)
def test_tensor_parallel_layers(me):
    from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module
    torch.manual_seed(1)
    model = torch.nn.Sequential(torch.nn.Linear(8, 16), torch.nn.ReLU(), torch.nn.Linear(16, 4)).to(me.device)
    given = torch.randn(3, 8).to(me.device)
    expected = model(given).detach()
    parallel = parallelize_module(model, mesh_of(me, me.size), {"0": ColwiseParallel(), "2": RowwiseParallel()})
    result = parallel(given)
    assert torch.allclose(result.detach(), expected, atol=1e-3)
    result.sum().backward()


@torch_at_least(2, 6)
@every_rank(2, 4)
@pytest.mark.parametrize("reshard", [True, False], ids=["reshard", "keep"])
def test_fully_shard(me, reshard):
    from torch.distributed.fsdp import fully_shard
    model, mesh = models.make(me.device), mesh_of(me, me.size)
    for layer in (model.up, model.down):
        fully_shard(layer, mesh=mesh, reshard_after_forward=reshard)
    fully_shard(model, mesh=mesh, reshard_after_forward=reshard)
    models.train(model, me.device, me.rank)
    models.expect_weights(model.parameters(), models.train_alone(me).parameters())


@torch_at_least(2, 6)
@every_rank(2)
def test_fully_shard_in_half_precision(me):
    from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard
    model, mesh = models.make(me.device), mesh_of(me, me.size)
    policy = MixedPrecisionPolicy(param_dtype=torch.bfloat16, reduce_dtype=torch.float32)
    for layer in (model.up, model.down):
        fully_shard(layer, mesh=mesh, mp_policy=policy)
    fully_shard(model, mesh=mesh, mp_policy=policy)
    before = models.loss_of(model, me.device, me.rank, 0).item()
    models.train(model, me.device, me.rank, steps=12)
    assert models.loss_of(model, me.device, me.rank, 0).item() < before


@torch_at_least(2, 6)
@every_rank(4)
def test_fully_shard_on_a_mesh_of_replicas_and_shards(me):
    from torch.distributed.fsdp import fully_shard
    model, mesh = models.make(me.device), mesh_of(me, 2, 2, names=("replicas", "shards"))
    for layer in (model.up, model.down):
        fully_shard(layer, mesh=mesh)
    fully_shard(model, mesh=mesh)
    models.train(model, me.device, me.rank)
    models.expect_weights(model.parameters(), models.train_alone(me).parameters())


@needs_gpu
@every_rank(2)
def test_the_older_fsdp(me):
    from torch.distributed.fsdp import FullyShardedDataParallel
    model = FullyShardedDataParallel(models.make(me.device), use_orig_params=True, device_id=me.device)
    models.train(model, me.device, me.rank)
    with FullyShardedDataParallel.summon_full_params(model):
        models.expect_weights(model.parameters(), models.train_alone(me).parameters())


@every_rank(2)
def test_zero_redundancy_optimizer(me):
    from torch.distributed.optim import ZeroRedundancyOptimizer
    from torch.nn.parallel import DistributedDataParallel
    model = DistributedDataParallel(models.make(me.device), device_ids=[me.device] if ON_GPU else None)
    models.train(model, me.device, me.rank, optimizer=lambda parameters: ZeroRedundancyOptimizer(
        parameters, optimizer_class=torch.optim.AdamW, lr=0.01))
    alone = models.train_alone(me, optimizer=lambda parameters: torch.optim.AdamW(parameters, lr=0.01))
    models.expect_weights(model.parameters(), alone.parameters())


@torch_at_least(2, 4)
@every_rank(2)
def test_compiled_code_with_collectives(me):
    import torch.distributed._functional_collectives as functional

    def double_sum(x):
        return functional.all_reduce(x * 2, "sum", dist.group.WORLD) + 1

    compiled = torch.compile(double_sum, backend="aot_eager", fullgraph=False)
    result = functional.wait_tensor(compiled(torch.ones(4, device=me.device)))
    expect(result, torch.full((4,), 2.0 * me.size + 1))


@needs_gpu
@every_rank(2)
def test_a_checkpoint(me):
    if TORCH < (2, 2):
        pytest.skip("is newer")
    import shutil
    import tempfile
    checkpoint = pytest.importorskip("torch.distributed.checkpoint")
    folder = [tempfile.mkdtemp(prefix="tutti_torch_checkpoint_") if me.rank == 0 else None]
    dist.broadcast_object_list(folder, src=0)
    checkpoint.save({"weight": ramp(me, 10, rank=0)}, checkpoint_id=folder[0])
    loaded = {"weight": torch.zeros(10, device=me.device)}
    checkpoint.load(loaded, checkpoint_id=folder[0])
    expect(loaded["weight"], ramp(me, 10, rank=0))
    dist.barrier()
    if me.rank == 0:
        shutil.rmtree(folder[0])
