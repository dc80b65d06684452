"""What torch 2 builds on a backend: functional collectives, DeviceMesh, DTensor, FSDP, new arguments."""
import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch
import torch.distributed as dist

import training
import worlds
from bodies import BACKEND, TORCH, every_rank, needs_torch_2, ramp, torch_at_least

pytestmark = needs_torch_2


def mesh_of(*shape, names=None):
    from torch.distributed.device_mesh import init_device_mesh
    return init_device_mesh("cpu", shape, mesh_dim_names=names)


def plain(tensor):
    """The tensor behind what a functional collective returns."""
    import torch.distributed._functional_collectives as funcol
    return funcol.wait_tensor(tensor)


@every_rank(1, 2, 4)
def test_functional_all_reduce(me):
    import torch.distributed._functional_collectives as funcol
    given = ramp(me.rank, 10)
    result = plain(funcol.all_reduce(given, "sum", dist.group.WORLD))
    assert torch.equal(result, sum(ramp(rank, 10) for rank in range(me.size)))
    assert torch.equal(given, ramp(me.rank, 10))  # not in place
    average = plain(funcol.all_reduce(given, "max", dist.group.WORLD))
    assert torch.equal(average, ramp(me.size - 1, 10))


@every_rank(1, 2, 4)
def test_functional_gather_and_reduce_scatter(me):
    import torch.distributed._functional_collectives as funcol
    whole = plain(funcol.all_gather_tensor(ramp(me.rank, 6), 0, dist.group.WORLD))
    assert torch.equal(whole, torch.cat([ramp(rank, 6) for rank in range(me.size)]))
    mine = plain(funcol.reduce_scatter_tensor(whole, "sum", 0, dist.group.WORLD))
    assert torch.equal(mine, me.size * ramp(me.rank, 6))


@every_rank(2, 4)
def test_functional_gather_along_another_dimension(me):
    import torch.distributed._functional_collectives as funcol
    part = torch.full((3, 2), float(me.rank))
    whole = plain(funcol.all_gather_tensor(part, 1, dist.group.WORLD))
    expected = torch.cat([torch.full((3, 2), float(rank)) for rank in range(me.size)], dim=1)
    assert torch.equal(whole, expected)


@every_rank(2, 3)
def test_functional_all_to_all(me):
    import torch.distributed._functional_collectives as funcol
    given = torch.cat([ramp(10 * me.rank + to, 4) for to in range(me.size)])
    got = plain(funcol.all_to_all_single(given, None, None, dist.group.WORLD))
    assert torch.equal(got, torch.cat([ramp(10 * source + me.rank, 4) for source in range(me.size)]))


@torch_at_least(2, 3)
@every_rank(2)
def test_functional_coalesced(me):
    import torch.distributed._functional_collectives as funcol
    given = [ramp(me.rank, 3), ramp(me.rank, 5)]
    for tensor, result in zip(given, funcol.all_reduce_coalesced(given, "sum", dist.group.WORLD)):
        assert torch.equal(plain(result), sum(ramp(rank, tensor.numel()) for rank in range(me.size)))
    whole = funcol.all_gather_into_tensor_coalesced(given, dist.group.WORLD)
    for tensor, result in zip(given, whole):
        assert torch.equal(plain(result), torch.cat([ramp(rank, tensor.numel())
                                                     for rank in range(me.size)]))


@torch_at_least(2, 3)
@every_rank(4)
def test_a_mesh_of_two_dimensions(me):
    mesh = mesh_of(2, 2, names=("rows", "columns"))
    for name, expected in (("rows", {me.rank % 2, me.rank % 2 + 2}),
                           ("columns", {me.rank // 2 * 2, me.rank // 2 * 2 + 1})):
        tensor = torch.full((3,), float(me.rank))
        dist.all_reduce(tensor, group=mesh.get_group(name))
        assert tensor[0].item() == sum(expected)
    dist.barrier()


@torch_at_least(2, 5)
@every_rank(2, 4)
def test_distributed_tensors(me):
    from torch.distributed.tensor import Replicate, Shard, distribute_tensor
    torch.manual_seed(1)
    whole = torch.randn(8, 6)
    mesh = mesh_of(me.size)
    sharded = distribute_tensor(whole, mesh, [Shard(0)])
    assert sharded.to_local().shape == (8 // me.size, 6)
    assert torch.equal(sharded.full_tensor(), whole)
    assert torch.allclose(sharded.sum().full_tensor(), whole.sum(), rtol=1e-5)
    columns = sharded.redistribute(mesh, [Shard(1)]).redistribute(mesh, [Replicate()])
    assert torch.equal(columns.to_local(), whole)


@torch_at_least(2, 5)
@every_rank(2)
def test_tensor_parallel_layers(me):
    from torch.distributed.tensor.parallel import (ColwiseParallel, RowwiseParallel,
                                                   parallelize_module)
    torch.manual_seed(1)
    model = torch.nn.Sequential(torch.nn.Linear(8, 16), torch.nn.ReLU(), torch.nn.Linear(16, 4))
    x = torch.randn(3, 8)
    expected = model(x).detach()
    parallel = parallelize_module(model, mesh_of(me.size),
                                  {"0": ColwiseParallel(), "2": RowwiseParallel()})
    result = parallel(x)
    assert torch.allclose(result.detach(), expected, atol=1e-5)
    result.sum().backward()


def fsdp_losses(me, group, steps=10):
    from torch.distributed.fsdp import FullyShardedDataParallel, ShardingStrategy
    torch.manual_seed(7)
    model = FullyShardedDataParallel(training.Toy(), process_group=group, use_orig_params=True,
                                     device_id=torch.device("cpu"),
                                     sharding_strategy=ShardingStrategy.FULL_SHARD)
    return losses(me, model, steps)


def fully_shard_losses(me, group, steps=10):
    from torch.distributed.device_mesh import DeviceMesh
    from torch.distributed.fsdp import fully_shard
    torch.manual_seed(7)
    model = training.Toy()
    mesh = DeviceMesh.from_group(group or dist.group.WORLD, "cpu")
    for layer in (model.up, model.down):
        fully_shard(layer, mesh=mesh)
    return losses(me, fully_shard(model, mesh=mesh), steps)


def losses(me, model, steps):
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    found = []
    for step in range(steps):
        tokens, labels = training.batch(me.rank, step)
        loss = torch.nn.functional.cross_entropy(model(tokens), labels)
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        total = loss.detach().double().reshape(1)
        dist.all_reduce(total)
        found.append(total.item() / me.size)
    return found


@every_rank(1, 2, 4)
@pytest.mark.parametrize("kind", ["fsdp", "fully_shard"])
def test_sharded_training_on_the_cpu(me, kind):
    """Losses as with DDP. Where torch's own gloo cannot run it either, this torch does not do it."""
    if kind == "fully_shard" and TORCH < (2, 6):
        pytest.skip("fully_shard is newer")
    train = fsdp_losses if kind == "fsdp" else fully_shard_losses
    try:
        found = train(me, None)
    except Exception as error:
        if BACKEND == "gloo":
            pytest.skip(f"torch cannot: {error}")
        try:
            train(me, dist.new_group(backend="gloo"))
        except Exception as also:
            pytest.skip(f"torch cannot, with gloo neither: {also}")
        raise
    expected, _ = training.train(me.rank, steps=10, optimizer=lambda p: torch.optim.SGD(p, lr=0.1))
    assert training.close(found, expected, 1e-5)


def make_it_without_rank_1(me):
    if me.rank in (0, 2):
        group = dist.new_group([0, 2], use_local_synchronization=True)
        tensor = torch.full((3,), float(me.rank))
        dist.all_reduce(tensor, group=group)
        assert tensor[0].item() == 2
    dist.barrier()


@torch_at_least(2, 1)
def test_a_group_that_only_its_members_make():
    """In a world of its own: torch names such a group by how many groups the rank is in already."""
    world = worlds.World(3, BACKEND)
    try:
        world.run(make_it_without_rank_1)
    finally:
        world.close()


@torch_at_least(2, 6)
@every_rank(3)
def test_roots_may_be_ranks_of_the_group(me):
    group = dist.new_group([1, 2])
    if me.rank in (1, 2):
        tensor = torch.full((3,), float(me.rank))
        dist.broadcast(tensor, group_src=1, group=group)
        assert tensor[0].item() == 2
    dist.barrier()


@torch_at_least(2, 4)
@every_rank(2)
def test_object_lists_between_two_ranks(me):
    things = [{"a": 1}, "b"] if me.rank == 0 else [None, None]
    if me.rank == 0:
        dist.send_object_list(things, dst=1)
    else:
        dist.recv_object_list(things, src=0)
    assert things == [{"a": 1}, "b"]


def join_by_device(me):
    dist.init_process_group(f"cpu:{me.backend}", init_method=f"file://{me.folder}/store",
                            rank=me.rank, world_size=me.size)
    tensor = torch.ones(3)
    dist.all_reduce(tensor)
    dist.destroy_process_group()
    return tensor[0].item()


def test_the_backend_may_be_named_with_its_device(lone_ranks):
    assert lone_ranks(2).run(join_by_device) == [2.0, 2.0]


@torch_at_least(2, 2)
@every_rank(2)
def test_checkpoints(me):
    checkpoint = pytest.importorskip("torch.distributed.checkpoint")
    import tempfile
    folder = [tempfile.mkdtemp(prefix="tutti_torch_checkpoint_") if me.rank == 0 else None]
    dist.broadcast_object_list(folder, src=0)
    state = {"weight": ramp(0, 10), "step": torch.tensor(3)}
    checkpoint.save(state, checkpoint_id=folder[0])
    loaded = {"weight": torch.zeros(10), "step": torch.tensor(0)}
    checkpoint.load(loaded, checkpoint_id=folder[0])
    assert torch.equal(loaded["weight"], ramp(0, 10)) and loaded["step"].item() == 3
    dist.barrier()
    if me.rank == 0:
        import shutil
        shutil.rmtree(folder[0])


@torch_at_least(2, 4)
@every_rank(2)
def test_compiled_code_with_collectives(me):
    """Traced, not compiled by a C++ compiler: the graph holds the collective."""
    import torch.distributed._functional_collectives as funcol

    def double_sum(x):
        return funcol.all_reduce(x * 2, "sum", dist.group.WORLD) + 1

    compiled = torch.compile(double_sum, backend="aot_eager", fullgraph=False)
    result = plain(compiled(torch.ones(4)))
    assert torch.equal(result, torch.full((4,), 2.0 * me.size + 1))


AUTOLOADED = """
import sys, tutti_torch_autoload
tutti_torch_autoload.register()
import torch.distributed as dist
assert "tutti_torch" not in sys.modules
dist.init_process_group("tutti", init_method=f"file://{sys.argv[1]}", rank=0, world_size=1)
dist.barrier()
import tutti_torch
print(tutti_torch.describe())
"""


@torch_at_least(2, 5)
def test_what_torch_calls_for_installed_packages_registers_the_backend(tmp_path):
    folders = [os.environ.get("PYTHONPATH", ""), str(Path(__file__).parents[2] / "bindings/torch")]
    done = subprocess.run([sys.executable, "-c", AUTOLOADED, str(tmp_path / "store")], text=True, timeout=120,
                          capture_output=True, env={**os.environ, "PYTHONPATH": os.pathsep.join(folders)})
    assert done.returncode == 0, done.stderr
    assert "1 rank on 1 host" in done.stdout
