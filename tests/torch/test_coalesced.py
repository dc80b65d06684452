"""Several tensors in one call."""
import torch
import torch.distributed as dist

from bodies import every_rank, needs_torch_2, ramp, tutti_only


@every_rank(1, 2, 3)
def test_all_reduce_coalesced(me):
    tensors = [ramp(me.rank, count) for count in (1, 17, 1000)]
    dist.all_reduce_coalesced(tensors)
    for tensor in tensors:
        assert torch.equal(tensor, sum(ramp(rank, tensor.numel()) for rank in range(me.size)))


@every_rank(2)
def test_all_reduce_coalesced_takes_an_operation_and_runs_beside(me):
    tensors = [ramp(me.rank, 5), ramp(me.rank, 9).view(3, 3)]
    work = dist.all_reduce_coalesced(tensors, op=dist.ReduceOp.MAX, async_op=True)
    work.wait()
    assert torch.equal(tensors[0], ramp(me.size - 1, 5))
    assert torch.equal(tensors[1], ramp(me.size - 1, 9).view(3, 3))


@every_rank(1, 2, 3)
def test_all_gather_coalesced(me):
    inputs = [ramp(me.rank, 3), ramp(me.rank + 5, 8).view(2, 4)]
    outputs = [[torch.zeros_like(tensor) for tensor in inputs] for _ in range(me.size)]
    dist.all_gather_coalesced(outputs, inputs)
    for rank in range(me.size):
        assert torch.equal(outputs[rank][0], ramp(rank, 3))
        assert torch.equal(outputs[rank][1], ramp(rank + 5, 8).view(2, 4))


@needs_torch_2
@tutti_only
@every_rank(1, 2, 4)
def test_coalescing_manager_runs_reductions_together(me):
    tensors = [ramp(me.rank, count) for count in (1, 17, 1000)]
    with dist._coalescing_manager():
        for tensor in tensors:
            dist.all_reduce(tensor)
    for tensor in tensors:
        assert torch.equal(tensor, sum(ramp(rank, tensor.numel()) for rank in range(me.size)))


@needs_torch_2
@tutti_only
@every_rank(1, 2, 4)
def test_coalescing_manager_gives_a_work_to_wait_for(me):
    outputs = [torch.zeros(me.size * count) for count in (2, 5)]
    inputs = [ramp(me.rank, count) for count in (2, 5)]
    with dist._coalescing_manager(async_ops=True) as manager:
        for output, given in zip(outputs, inputs):
            dist.all_gather_into_tensor(output, given)
    manager.wait()
    for output, given in zip(outputs, inputs):
        assert torch.equal(output, torch.cat([ramp(rank, given.numel())
                                              for rank in range(me.size)]))
    reduced = [torch.zeros(count) for count in (2, 5)]
    with dist._coalescing_manager(async_ops=True) as manager:
        for output, given in zip(reduced, outputs):
            dist.reduce_scatter_tensor(output, given)
    manager.wait()
    for output in reduced:
        assert torch.equal(output, me.size * ramp(me.rank, output.numel()))
