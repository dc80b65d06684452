"""DistributedDataParallel: the same losses as gloo's, the same bits on all ranks, every comm hook."""
import pytest
import torch
import torch.distributed as dist
from torch.distributed.algorithms.ddp_comm_hooks import default_hooks

import training
from bodies import TORCH, every_rank, same_on_all

OPTIONS = [{}, {"gradient_as_bucket_view": True}, {"static_graph": True},
           {"find_unused_parameters": True}, {"broadcast_buffers": False}]


def one_digest(model):
    return len(set(training.digests(model))) == 1


def losses_of_gloo(me, **options):
    """The same training over gloo, in the same processes; remembered, for it is slow."""
    group = getattr(me, "gloo", None)
    if group is None:
        group = me.gloo = dist.new_group(backend="gloo")
    return training.train(me.rank, group=group, **options)[0]


@every_rank(1, 2, 4)
@pytest.mark.parametrize("options", OPTIONS, ids=lambda o: next(iter(o), "plain"))
def test_losses_are_gloos_and_ranks_agree_to_the_bit(me, options):
    losses, model = training.train(me.rank, **options)
    assert losses[-1] < losses[0]
    assert training.close(losses, losses_of_gloo(me, **options), 1e-5)
    assert one_digest(model)


@every_rank(2)
def test_ranks_agree_on_the_first_weights_even_if_they_began_differently(me):
    torch.manual_seed(me.rank)
    model = torch.nn.parallel.DistributedDataParallel(training.Toy())
    assert one_digest(model)


@every_rank(2)
def test_gradients_are_the_average_over_ranks(me):
    torch.manual_seed(3)
    reference, module = torch.nn.Linear(5, 3), torch.nn.Linear(5, 3)
    module.load_state_dict(reference.state_dict())
    model = torch.nn.parallel.DistributedDataParallel(module)
    inputs = [torch.full((2, 5), float(rank + 1)) for rank in range(me.size)]
    model(inputs[me.rank]).pow(2).mean().backward()
    torch.stack([reference(x).pow(2).mean() for x in inputs]).mean().backward()
    for mine, wanted in zip(module.parameters(), reference.parameters()):
        assert torch.allclose(mine.grad, wanted.grad, rtol=1e-6)


@every_rank(2)
def test_accumulation_without_synchronisation(me):
    losses, model = training.train(me.rank, accumulate=3, steps=6)
    assert training.close(losses, losses_of_gloo(me, accumulate=3, steps=6), 1e-5)
    assert one_digest(model)


@every_rank(2, 3)
def test_parameters_that_a_step_does_not_use(me):
    torch.manual_seed(5)
    model = torch.nn.parallel.DistributedDataParallel(training.Branches(),
                                                      find_unused_parameters=True)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for step in range(6):
        which = (step + me.rank) % 2  # ranks use different branches in one step
        optimizer.zero_grad()
        model(torch.ones(2, 8) * (me.rank + 1), which).sum().backward()
        optimizer.step()
    assert one_digest(model)


@every_rank(2)
def test_the_hook_for_plain_reduction(me):
    losses, model = training.train(me.rank, hook=default_hooks.allreduce_hook)
    assert training.close(losses, losses_of_gloo(me), 1e-5)
    assert one_digest(model)


@every_rank(2)
def test_a_hook_that_compresses(me):
    losses, model = training.train(me.rank, hook=default_hooks.fp16_compress_hook)
    assert training.close(losses, losses_of_gloo(me), 0.05)  # half precision on the wire
    assert one_digest(model)


def scale_in_python(group, bucket):
    """Sums, then divides in a chain of callbacks."""
    work = dist.all_reduce(bucket.buffer(), group=group, async_op=True)
    future = work.get_future()
    return future.then(lambda done: done.value()[0]).then(
        lambda done: done.value() / dist.get_world_size(group))


@every_rank(2, 3)
def test_a_hook_with_a_chain_of_python_callbacks(me):
    losses, model = training.train(me.rank, hook=scale_in_python)
    assert training.close(losses, losses_of_gloo(me), 1e-5)
    assert one_digest(model)


def two_collectives(group, bucket):
    """A reduce_scatter whose callback starts an all_gather, as sharding hooks do."""
    size, buffer = dist.get_world_size(group), bucket.buffer()
    padded = torch.zeros(-(-buffer.numel() // size) * size)
    padded[:buffer.numel()] = buffer
    share = torch.zeros(padded.numel() // size)
    future = dist.reduce_scatter_tensor(share, padded, group=group, async_op=True).get_future()

    def gather(_):
        share.div_(size)
        dist.all_gather_into_tensor(padded, share, group=group)
        return padded[:buffer.numel()]

    result = torch.futures.Future()
    future.wait()
    result.set_result(gather(future))
    return result


@every_rank(2, 3)
def test_a_hook_of_reduce_scatter_and_all_gather(me):
    if me.backend == "gloo":
        pytest.skip("gloo has no reduce_scatter")
    losses, model = training.train(me.rank, hook=two_collectives)
    assert training.close(losses, losses_of_gloo(me), 1e-5)
    assert one_digest(model)


def take_one_matrix(module):
    """torch's batched hook (1.13, 2.11) hands one matrix to a function that takes a list of them only."""
    several = module._orthogonalize
    module._orthogonalize = lambda matrices, epsilon=0: several(
        matrices if matrices.dim() == 3 else matrices.unsqueeze(0), epsilon)


def power_sgd(name):
    """(a function that makes a state, the hook) of a variant of torch's PowerSGD."""
    module = pytest.importorskip("torch.distributed.algorithms.ddp_comm_hooks.powerSGD_hook")
    if name == "fp16" and TORCH < (2, 0):
        pytest.skip("this torch cannot multiply halves")
    if name == "batched":
        take_one_matrix(module)
    hook = module.batched_powerSGD_hook if name == "batched" else module.powerSGD_hook
    if name in ("fp16", "bf16"):
        hook = getattr(default_hooks, f"{name}_compress_wrapper")(hook)

    def state(group):
        return module.PowerSGDState(group, matrix_approximation_rank=2, start_powerSGD_iter=2)
    return state, hook


def one_bucket_after_the_other(hook):
    """The same in an order that no backend can change: nothing of the hook runs beside backward."""
    def run(state, bucket):
        future = hook(state, bucket)
        future.wait()
        return future
    return run


def under_another_name(hook):
    """DDP refuses bf16's hooks by name where there is no NCCL."""
    return lambda state, bucket: hook(state, bucket)


@every_rank(2, 3)
@pytest.mark.parametrize("variant", ["plain", "batched", "fp16", "bf16"])
def test_power_sgd_on_several_buckets(me, variant):
    state, hook = power_sgd(variant)
    losses, model = training.train(me.rank, hook=under_another_name(hook), hook_state=state(None),
                                   steps=10)
    me.gloo = getattr(me, "gloo", None) or dist.new_group(backend="gloo")
    group = None if variant == "bf16" else me.gloo  # of which gloo knows nothing
    expected, _ = training.train(me.rank, group=group, hook=one_bucket_after_the_other(hook),
                                 hook_state=state(group), steps=10)
    assert training.close(losses, expected, 1e-2 if variant in ("fp16", "bf16") else 1e-4)
    assert one_digest(model)


@every_rank(2)
def test_builtin_hooks(me):
    kinds = torch.distributed.BuiltinCommHookType
    torch.manual_seed(7)
    for kind in (kinds.ALLREDUCE, kinds.FP16_COMPRESS):
        model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(10, 4))
        model._register_builtin_comm_hook(kind)
        model(torch.ones(2, 10) * (me.rank + 1)).sum().backward()
        expected = torch.full((10,), 2 * sum(range(1, me.size + 1)) / me.size)
        assert torch.allclose(model.module.weight.grad[0], expected, rtol=1e-3)
        assert same_on_all(model.module.weight.grad)


@every_rank(2)
def test_uneven_inputs_with_join(me):
    torch.manual_seed(7)
    model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(4, 2))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    steps = 0
    with model.join():
        for _ in range(3 + 2 * me.rank):
            model(torch.ones(2, 4)).sum().backward()
            optimizer.step()
            optimizer.zero_grad()
            steps += 1
    assert steps == 3 + 2 * me.rank
    assert one_digest(model)


def buffers_everywhere(model):
    """Every rank's buffers, as one list of numbers each; collective."""
    found = [None] * dist.get_world_size()
    dist.all_gather_object(found, [value for buffer in model.buffers() for value in buffer.reshape(-1).tolist()])
    return found


@every_rank(2, 3)
@pytest.mark.parametrize("broadcast", [True, False])
def test_a_forward_brings_rank_0s_buffers_unless_told_not_to(me, broadcast):
    torch.manual_seed(me.rank)
    model = torch.nn.parallel.DistributedDataParallel(
        torch.nn.Sequential(torch.nn.Linear(4, 4), torch.nn.BatchNorm1d(4)), broadcast_buffers=broadcast)
    for _ in range(3):
        model(torch.randn(8, 4) + me.rank).sum().backward()
    model.module[1].num_batches_tracked += me.rank
    before = buffers_everywhere(model)
    assert all(before[0] != other for other in before[1:])
    model.eval()  # what the forward's own batch would change stays as it was brought
    model(torch.randn(8, 4))
    assert buffers_everywhere(model) == ([before[0]] * me.size if broadcast else before)


def wrap_another_model(me):
    with pytest.raises(RuntimeError):
        torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(4, 2 + me.rank))
        dist.barrier()  # rank 0 may learn of it here


def test_models_that_differ_are_refused_on_every_rank(lone_world):
    lone_world(2, timeout_s=3.0).run(wrap_another_model)  # rank 1 gives up, rank 0 misses it


@every_rank(2)
def test_post_local_sgd(me):
    hooks = pytest.importorskip("torch.distributed.algorithms.ddp_comm_hooks.post_localSGD_hook")
    state = hooks.PostLocalSGDState(process_group=None, subgroup=dist.new_group(),
                                    start_localSGD_iter=3)
    losses, _ = training.train(me.rank, hook=hooks.post_localSGD_hook, hook_state=state, steps=8)
    assert losses[-1] < losses[0]
