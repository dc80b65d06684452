"""Split layers against the unsplit ones, in float64; on gloo too (TUTTI_TORCH_BACKEND=gloo)."""
import math

import pytest
import torch
import torch.distributed as dist
import torch.nn.functional as functional

from bodies import every_rank

tp = pytest.importorskip("tutti_torch.tensor_parallel", reason="tutti_torch is not built")

B, S, H, F = 2, 8, 6, 10


def draw(*shape, seed=0):
    return torch.randn(*shape, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))


def leaf(tensor):
    return tensor.detach().clone().requires_grad_()


def fill(parameter, whole):
    with torch.no_grad():
        for dim, (first, count) in enumerate(zip(parameter.placed.first, parameter.shape)):
            whole = whole.narrow(dim, first, count)
        parameter.copy_(whole)


def own(me, whole, dim):
    return whole.narrow(dim, *tp.part_of(whole.size(dim), me.size, me.rank))


def close(got, wanted, tolerance=1e-12):
    assert got.shape == wanted.shape
    assert torch.allclose(got, wanted, rtol=tolerance, atol=tolerance), (got - wanted).abs().max()


def expect_parts(parameter, gradient_of_whole):
    placed = parameter.placed
    for dim, (first, count) in enumerate(zip(placed.first, parameter.shape)):
        gradient_of_whole = gradient_of_whole.narrow(dim, first, count)
    close(parameter.grad, gradient_of_whole)


@every_rank(1, 2, 3, 4)
@pytest.mark.parametrize("sequence", [None, 8, 7])
def test_block_computes_what_the_unsplit_one_does(me, sequence):
    length = sequence or S
    x, seed = draw(B, length, H, seed=1), draw(B, length, H, seed=2)
    wholes = [draw(H, seed=3), draw(H, seed=4), draw(F, H, seed=5), draw(F, seed=6), draw(H, F, seed=7), draw(H, seed=8)]

    whole_x, leaves = leaf(x), [leaf(whole) for whole in wholes]
    y = whole_x + functional.linear(functional.gelu(functional.linear(
        functional.layer_norm(whole_x, (H,), *leaves[:2]), *leaves[2:4])), *leaves[4:])
    y.backward(seed)

    split = {"sequence_parallel": sequence is not None, "dtype": torch.float64}
    first = tp.ColumnParallelLinear(H, F, sequence_length=sequence, **split)
    second = tp.RowParallelLinear(F, H, **split)
    norm = torch.nn.LayerNorm(H, dtype=torch.float64)
    if sequence:
        tp.mark_partial(norm)
    block = torch.nn.ModuleList([norm, first, second])
    with torch.no_grad():
        norm.weight.copy_(wholes[0])
        norm.bias.copy_(wholes[1])
    for parameter, whole in zip([first.weight, first.bias, second.weight, second.bias], wholes[2:]):
        fill(parameter, whole)
    part = (lambda whole: own(me, whole, 1)) if sequence else (lambda whole: whole)
    own_x = leaf(part(x))
    own_y = own_x + second(functional.gelu(first(norm(own_x))))
    own_y.backward(part(seed))
    tp.sum_partial_gradients(block)

    close(own_y.detach(), part(y.detach()))
    close(own_x.grad, part(whole_x.grad))
    close(norm.weight.grad, leaves[0].grad)
    close(norm.bias.grad, leaves[1].grad)
    for parameter, whole in zip([first.weight, first.bias, second.weight, second.bias], leaves[2:]):
        expect_parts(parameter, whole.grad)


@every_rank(2, 3)
def test_mappings_are_adjoint_to_their_backwards(me):
    def check(mapping, x, out_differs):
        x = leaf(x)
        y = mapping(x)
        seed = draw(*y.shape, seed=50 + me.rank if out_differs else 50)
        y.backward(seed)
        sums = torch.stack([(x * x.grad).sum(), (y * seed).sum()]).detach()
        dist.all_reduce(sums)
        return sums

    replicated, mine = draw(B, 7, H, seed=1), draw(B, 7, H, seed=10 + me.rank)
    part = own(me, draw(B, 7, H, seed=20), 1)
    copy = check(tp.copy_to_ranks, replicated, True)
    assert math.isclose(copy[0] / me.size, copy[1], rel_tol=1e-10)  # the replicated side counts once
    reduce = check(tp.reduce_from_ranks, mine, False)
    assert math.isclose(reduce[0], reduce[1] / me.size, rel_tol=1e-10)
    gather = check(lambda x: tp.gather_from_ranks(x, 1, length=7), part, False)
    assert math.isclose(gather[0], gather[1] / me.size, rel_tol=1e-10)
    scatter = check(lambda x: tp.scatter_to_ranks(x, 1), replicated, True)
    assert math.isclose(scatter[0] / me.size, scatter[1], rel_tol=1e-10)
    for mapping, x in ((lambda x: tp.gather_sequence(x, length=7), part), (tp.reduce_scatter_sequence, mine)):
        sums = check(mapping, x, True)
        assert math.isclose(sums[0], sums[1], rel_tol=1e-10)


@every_rank(1, 2, 4)
@pytest.mark.parametrize("vocabulary", [257, 3])
@pytest.mark.parametrize("sequence_parallel", [False, True])
def test_embedding_is_that_of_one_table(me, vocabulary, sequence_parallel):
    table, tokens, seed = draw(vocabulary, 4, seed=1), (torch.arange(12).view(2, 6) * 37) % vocabulary, draw(2, 6, 4, seed=2)
    whole = leaf(table)
    wanted = functional.embedding(tokens, whole)
    wanted.backward(seed)
    layer = tp.VocabParallelEmbedding(vocabulary, 4, sequence_parallel=sequence_parallel, dtype=torch.float64)
    fill(layer.weight, table)
    y = layer(tokens)
    y.backward(own(me, seed, 1) if sequence_parallel else seed)
    assert torch.equal(y, own(me, wanted, 1) if sequence_parallel else wanted)
    expect_parts(layer.weight, whole.grad)


@every_rank(1, 2, 4)
@pytest.mark.parametrize("vocabulary", [257, 3])
@pytest.mark.parametrize("spread", [1.0, 1e4])
def test_cross_entropy_is_that_of_all_logits(me, vocabulary, spread):
    whole, weights = leaf(draw(2, 6, vocabulary, seed=1) * spread), draw(2, 6, seed=2)
    labels = (torch.arange(12).view(2, 6) * 41) % vocabulary
    labels[0, 1] = -100
    wanted = functional.cross_entropy(whole.view(12, vocabulary), labels.view(-1), reduction="none").view(2, 6)
    (wanted * weights).sum().backward()
    logits = leaf(own(me, whole, 2))
    losses = tp.vocab_parallel_cross_entropy(logits, labels, vocabulary)
    (losses * weights).sum().backward()
    close(losses.detach(), wanted.detach())
    close(logits.grad, own(me, whole.grad, 2))


@every_rank(1, 2, 3, 4)
@pytest.mark.parametrize("causal", [True, False])
@pytest.mark.parametrize("length", [24, 21])
def test_ring_attention_is_the_attention_over_the_whole(me, causal, length):
    shape = (2, 3, length, 5)
    leaves = [leaf(draw(*shape, seed=seed)) for seed in (1, 2, 3)]
    seed = draw(*shape, seed=4)
    scores = leaves[0].matmul(leaves[1].transpose(-2, -1)) / math.sqrt(5)
    if causal:
        scores = scores.masked_fill(torch.ones(length, length, dtype=torch.bool).triu(1), -math.inf)
    wanted = scores.softmax(-1).matmul(leaves[2])
    wanted.backward(seed)
    places = tp.positions(tp.zigzag(length, me.size, me.rank))
    parts = [leaf(whole.index_select(2, places)) for whole in leaves]
    y = tp.ring_attention(*parts, causal=causal, length=length)
    y.backward(seed.index_select(2, places))
    close(y.detach(), wanted.detach().index_select(2, places), 1e-10)
    for part, whole in zip(parts, leaves):
        close(part.grad, whole.grad.index_select(2, places), 1e-10)


@every_rank(4)
def test_split_layers_work_in_a_part_of_the_world(me):
    groups = [dist.new_group([0, 1]), dist.new_group([2, 3])]
    group, place = groups[me.rank // 2], me.rank % 2
    x = draw(1, 2, 8, 4, seed=me.rank // 2)
    places = tp.positions(tp.zigzag(8, 2, place))
    part = x.index_select(2, places)
    wanted = (x.matmul(x.transpose(-2, -1)) / 2).softmax(-1).matmul(x)
    close(tp.ring_attention(part, part, part, causal=False, group=group), wanted.index_select(2, places), 1e-10)
    summed = tp.reduce_from_ranks(torch.ones(3) * (me.rank + 1), group)
    assert torch.equal(summed, torch.full((3,), 3.0 if me.rank < 2 else 7.0))


@every_rank(2)
def test_wrong_sizes_are_named(me):
    with pytest.raises(ValueError, match="its part of 7 is"):
        tp.vocab_parallel_cross_entropy(torch.zeros(2, 7), torch.zeros(2, dtype=torch.long), 7)
    with pytest.raises(ValueError, match="has 5 tokens; its share of 20 is 10"):
        x = torch.zeros(1, 1, 5, 2)
        tp.ring_attention(x, x, x, length=20)
    with pytest.raises(ValueError, match="its part is"):
        tp.gather_sequence(torch.zeros(1, 2, 2), length=9)
    dist.barrier()


def test_zigzag_gives_every_token_to_one_rank():
    assert tp.zigzag(32, 4, 0) == [(0, 4), (28, 4)]
    assert tp.zigzag(32, 4, 3) == [(12, 8)]
    for length in (0, 1, 7, 32, 33):
        for ranks in range(1, 6):
            everyone = torch.cat([tp.positions(tp.zigzag(length, ranks, rank)) for rank in range(ranks)])
            assert torch.equal(everyone.sort().values, torch.arange(length))
