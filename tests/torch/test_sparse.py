"""Sums of sparse tensors, and the embeddings that need them."""
import pytest
import torch
import torch.distributed as dist

import training
from bodies import every_rank, tutti_only


def sparse(me, rank, rows=(0, 3)):
    """Rank r has 1, 2, … in some rows of a table, more rows the higher it is."""
    indices = torch.tensor([[row + rank for row in rows] + list(range(rank))])
    values = torch.arange(1.0, indices.shape[1] + 1).view(-1, 1).expand(-1, 4).contiguous()
    return torch.sparse_coo_tensor(indices, values, (10, 4))


@every_rank(1, 2, 3)
def test_all_reduce_of_sparse_tensors(me):
    tensor = sparse(me, me.rank)
    dist.all_reduce(tensor)
    expected = sum(sparse(me, rank).to_dense() for rank in range(me.size))
    assert tensor.is_sparse
    assert torch.equal(tensor.to_dense(), expected)


@every_rank(2)
def test_a_rank_may_have_nothing(me):
    tensor = sparse(me, 0) if me.rank == 0 else torch.sparse_coo_tensor(
        torch.zeros(1, 0, dtype=torch.int64), torch.zeros(0, 4), (10, 4))
    dist.all_reduce(tensor)
    assert torch.equal(tensor.to_dense(), sparse(me, 0).to_dense())


@every_rank(2)
def test_only_sums_make_sense(me):
    with pytest.raises((RuntimeError, ValueError)):
        dist.all_reduce(sparse(me, me.rank), op=dist.ReduceOp.MAX)
    dist.barrier()


@tutti_only
@every_rank(2)
def test_different_shapes_are_refused_everywhere(me):
    tensor = torch.sparse_coo_tensor(torch.tensor([[0]]), torch.ones(1, 4), (10 + me.rank, 4))
    with pytest.raises(RuntimeError, match="shape"):
        dist.all_reduce(tensor)
    dist.barrier()


class Sparse(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.embedding = torch.nn.Embedding(50, 8, sparse=True)
        self.out = torch.nn.Linear(8, 10)

    def forward(self, tokens):
        return self.out(self.embedding(tokens).mean(dim=1))


@every_rank(2, 3)
def test_ddp_with_sparse_gradients(me):
    torch.manual_seed(3)
    model = torch.nn.parallel.DistributedDataParallel(Sparse())
    optimizer = torch.optim.SGD(model.parameters(), lr=0.5)
    losses = []
    for step in range(8):
        optimizer.zero_grad()
        losses.append(training.one_step(me.rank, model, step, 1).item())
        assert model.module.embedding.weight.grad.is_sparse
        optimizer.step()
    assert losses[-1] < losses[0]
    assert len(set(training.digests(model))) == 1
