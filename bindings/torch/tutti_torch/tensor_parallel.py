"""Layers that are split over the ranks of a process group, and attention over a sequence that is.

    from tutti_torch import tensor_parallel as tp

    qkv = tp.ColumnParallelLinear(512, 1536, group=group, sequence_parallel=True)
    out = tp.RowParallelLinear(512, 512, group=group, sequence_parallel=True)
    x = x + out(mix(qkv(norm(x))))                # x: [b, s / ranks, 512], this rank's part of the sequence
    loss.backward()
    tp.sum_partial_gradients(model, group)        # norms and biases have seen a part of the sequence each

    y = tp.ring_attention(query, key, value, group=group)      # tokens cut by tp.zigzag(length, ranks, rank)

What is sent is what tutti/libtorch/tensor_parallel.hpp and context_parallel.hpp send, by torch.distributed: the group may be
of any backend that has all_reduce, all_gather and send. Sizes need not divide: parts are those of torch.chunk. Every
rank runs the same layers in the same order; backward does so by itself, because autograd takes nodes in the
reverse of the order in which forward made them.

A parameter of these layers says in `parameter.placed` which box of the whole it is.
"""

import collections
import math

import torch
import torch.distributed as dist
import torch.nn.functional as functional

__all__ = ["ColumnParallelLinear", "Placed", "RowParallelLinear", "VocabParallelEmbedding", "copy_to_ranks",
           "gather_from_ranks", "gather_sequence", "mark_partial", "part_of", "positions", "reduce_from_ranks",
           "reduce_scatter_sequence", "ring_attention", "scatter_to_ranks", "sum_partial_gradients",
           "vocab_parallel_cross_entropy", "zigzag"]

# Of a parameter: the whole tensor's shape, where this rank's box begins in it, whether all ranks have the same box,
# and whether the gradient here is one part of a sum over them.
Placed = collections.namedtuple("Placed", "whole_shape first replicated partial")


def part_of(whole, parts, index):
    """Where part `index` begins, and how long it is: as torch.chunk cuts, with empty parts at the end."""
    length = -(-whole // parts)
    first = min(whole, length * index)
    return first, min(whole, first + length) - first


def _size(group):
    return dist.get_world_size(group)


def _own(whole, group):
    return part_of(whole, _size(group), dist.get_rank(group))


# ---- collectives on tensors: each returns a function that waits and has the result


def _all_reduce(x, group, operation=dist.ReduceOp.SUM):
    total = x.contiguous().clone()
    work = dist.all_reduce(total, operation, group=group, async_op=True)

    def result():
        work.wait()
        return total
    return result


def _lengths(whole, group):
    return [part_of(whole, _size(group), rank)[1] for rank in range(_size(group))]


def _padded(x, dim, length):
    """All ranks send equally much: not every backend lets them differ."""
    missing = length - x.size(dim)
    if missing == 0:
        return x.contiguous()
    shape = list(x.shape)
    shape[dim] = missing
    return torch.cat([x, x.new_zeros(shape)], dim)


def _all_gather(x, dim, whole, group):
    lengths = _lengths(whole, group)
    if x.size(dim) != lengths[dist.get_rank(group)]:
        raise ValueError(f"rank {dist.get_rank(group)} of {_size(group)} has {x.size(dim)} of {whole} indices of dimension "
                         f"{dim}; its part is {lengths[dist.get_rank(group)]}")
    mine = _padded(x, dim, lengths[0])
    parts = [torch.empty_like(mine) for _ in lengths]
    work = dist.all_gather(parts, mine, group=group, async_op=True)

    def result():
        work.wait()
        return torch.cat([part.narrow(dim, 0, length) for part, length in zip(parts, lengths)], dim)
    return result


def _reduce_scatter(x, dim, group):
    if dist.get_backend(group) == "gloo":  # which has none for tensors on the CPU
        total = _all_reduce(x, group)
        return lambda: total().narrow(dim, *_own(x.size(dim), group)).contiguous()
    lengths = _lengths(x.size(dim), group)
    parts, first = [], 0
    for length in lengths:
        parts.append(_padded(x.narrow(dim, first, length), dim, lengths[0]))
        first += length
    mine = torch.empty_like(parts[0])
    work = dist.reduce_scatter(mine, parts, group=group, async_op=True)

    def result():
        work.wait()
        return mine.narrow(dim, 0, lengths[dist.get_rank(group)]).contiguous()
    return result


# ---- conjugate functions


class _Mapped(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, there, back):
        ctx.back = back
        return there(x)

    @staticmethod
    def backward(ctx, gradient):
        return ctx.back(gradient), None, None


def _mapped(x, group, there, back):
    return x if _size(group) == 1 else _Mapped.apply(x, there, back)


def _same(x):
    return x.view_as(x)


def copy_to_ranks(x, group=None):
    """x · all_reduce of gradients: before layers of which each rank has a part."""
    return _mapped(x, group, _same, lambda g: _all_reduce(g, group)())


def reduce_from_ranks(x, group=None):
    """all_reduce · gradients as they are: after such layers."""
    return _mapped(x, group, lambda y: _all_reduce(y, group)(), _same)


def gather_from_ranks(x, dim, group=None, length=None):
    """all_gather · own part of gradients. `length`: of the whole; absent: all parts are like this one."""
    dim = dim % x.dim()
    whole = length or x.size(dim) * _size(group)
    return _mapped(x, group, lambda y: _all_gather(y, dim, whole, group)(),
                   lambda g: g.narrow(dim, *_own(whole, group)).contiguous())


def scatter_to_ranks(x, dim, group=None):
    """own part · all_gather of gradients."""
    dim = dim % x.dim()
    whole = x.size(dim)
    return _mapped(x, group, lambda y: y.narrow(dim, *_own(whole, group)).contiguous(),
                   lambda g: _all_gather(g, dim, whole, group)())


def gather_sequence(x, dim=1, group=None, length=None):
    """all_gather · reduce_scatter of gradients: from parts of a sequence to layers that are split otherwise."""
    whole = length or x.size(dim) * _size(group)
    return _mapped(x, group, lambda y: _all_gather(y, dim, whole, group)(),
                   lambda g: _reduce_scatter(g, dim, group)())


def reduce_scatter_sequence(x, dim=1, group=None):
    """reduce_scatter · all_gather of gradients: back to parts of the sequence."""
    whole = x.size(dim)
    return _mapped(x, group, lambda y: _reduce_scatter(y, dim, group)(),
                   lambda g: _all_gather(g, dim, whole, group)())


# ---- what trainers have to know of parameters


def mark_partial(module):
    """Gradients of all parameters of `module` are parts of sums: a norm on a part of the sequence."""
    for parameter in module.parameters():
        known = getattr(parameter, "placed", None) or Placed(tuple(parameter.shape), (0,) * parameter.dim(), True, False)
        parameter.placed = known._replace(partial=True)


def sum_partial_gradients(module, group=None):
    """After backward: makes whole gradients of those that are parts of sums. One all_reduce for each type."""
    by_type = {}
    for parameter in module.parameters():
        if getattr(parameter, "placed", None) and parameter.placed.partial and parameter.grad is not None:
            by_type.setdefault(parameter.grad.dtype, []).append(parameter.grad)
    for gradients in by_type.values():
        total = _all_reduce(torch.cat([gradient.reshape(-1) for gradient in gradients]), group)()
        for gradient, part in zip(gradients, total.split([gradient.numel() for gradient in gradients])):
            gradient.copy_(part.view_as(gradient))


def _parameter(shape, whole_shape, first, partial=False, **options):
    parameter = torch.nn.Parameter(torch.empty(shape, **options))
    parameter.placed = Placed(tuple(whole_shape), tuple(first), tuple(shape) == tuple(whole_shape), partial)
    return parameter


# ---- linear layers


class _ColumnLinear(torch.autograd.Function):
    """y = x · weightᵀ + bias, x the same on all ranks, or a part of the sequence. What is sent in backward goes
    beside the weight's gradient."""

    @staticmethod
    def forward(ctx, x, weight, bias, group, sequence_dim, length):
        ctx.save_for_backward(x, weight)
        ctx.group, ctx.sequence_dim, ctx.length, ctx.has_bias = group, sequence_dim, length, bias is not None
        whole = x if sequence_dim is None else _all_gather(x, sequence_dim, length, group)()
        return functional.linear(whole, weight, bias)

    @staticmethod
    def backward(ctx, gradient):
        x, weight = ctx.saved_tensors
        dim, group = ctx.sequence_dim, ctx.group
        whole = (lambda: x) if dim is None else _all_gather(x, dim, ctx.length, group)
        x_gradient = gradient.matmul(weight)
        x_gradient = _all_reduce(x_gradient, group) if dim is None else _reduce_scatter(x_gradient, dim, group)
        rows = gradient.reshape(-1, gradient.size(-1))
        weight_gradient = rows.t().mm(whole().reshape(-1, x.size(-1)))
        return x_gradient(), weight_gradient, rows.sum(0) if ctx.has_bias else None, None, None, None


class ColumnParallelLinear(torch.nn.Module):
    """[.., in_features] → [.., this rank's part of out_features].

    With sequence_parallel the input is this rank's part along `sequence_dim`, of `sequence_length` in all (absent: as
    many equal parts as ranks). `weight` is [out / ranks, in] and drawn as torch.nn.Linear's, each rank for itself:
    load or draw it by `weight.placed` where it has to be a part of one whole.
    """

    def __init__(self, in_features, out_features, bias=True, group=None, sequence_parallel=False, sequence_dim=1,
                 sequence_length=None, device=None, dtype=None):
        super().__init__()
        self.group, self.sequence_length = group, sequence_length
        self.sequence_dim = sequence_dim if sequence_parallel else None
        options = {"device": device, "dtype": dtype}
        first, count = _own(out_features, group)
        self.weight = _parameter((count, in_features), (out_features, in_features), (first, 0), **options)
        self.bias = _parameter((count,), (out_features,), (first,), **options) if bias else None
        _draw(self, in_features)

    def forward(self, x):
        if _size(self.group) == 1:
            return functional.linear(x, self.weight, self.bias)
        length = None
        if self.sequence_dim is not None:
            length = self.sequence_length or x.size(self.sequence_dim) * _size(self.group)
        return _ColumnLinear.apply(x, self.weight, self.bias, self.group, self.sequence_dim, length)


class RowParallelLinear(torch.nn.Module):
    """[.., this rank's part of in_features] → [.., out_features], the sum over ranks; the bias is added once.

    With sequence_parallel the output is this rank's part along `sequence_dim`, and the bias' gradient a part of a sum.
    """

    def __init__(self, in_features, out_features, bias=True, group=None, sequence_parallel=False, sequence_dim=1,
                 device=None, dtype=None):
        super().__init__()
        self.group = group
        self.sequence_dim = sequence_dim if sequence_parallel else None
        options = {"device": device, "dtype": dtype}
        first, count = _own(in_features, group)
        self.weight = _parameter((out_features, count), (out_features, in_features), (0, first), **options)
        self.bias = None
        if bias:
            self.bias = _parameter((out_features,), (out_features,), (0,),
                                   partial=sequence_parallel and _size(group) > 1, **options)
        _draw(self, in_features)

    def forward(self, x):
        y = functional.linear(x, self.weight)
        if self.sequence_dim is None:
            y = reduce_from_ranks(y, self.group)
        else:
            y = reduce_scatter_sequence(y, self.sequence_dim, self.group)
        return y if self.bias is None else y + self.bias


def _draw(layer, in_features):
    bound = 1 / math.sqrt(in_features) if in_features > 0 else 0
    for parameter in layer.parameters():
        torch.nn.init.uniform_(parameter, -bound, bound)


# ---- vocabulary


class VocabParallelEmbedding(torch.nn.Module):
    """Tokens, the same on all ranks → [.., width]; with sequence_parallel this rank's part along `sequence_dim`."""

    def __init__(self, vocabulary, width, group=None, sequence_parallel=False, sequence_dim=1, device=None, dtype=None):
        super().__init__()
        self.group = group
        self.sequence_dim = sequence_dim if sequence_parallel else None
        self.first, count = _own(vocabulary, group)
        self.weight = _parameter((count, width), (vocabulary, width), (self.first, 0), device=device, dtype=dtype)
        torch.nn.init.normal_(self.weight)

    def forward(self, tokens):
        if _size(self.group) == 1:
            return functional.embedding(tokens, self.weight)
        rows = tokens - self.first
        elsewhere = (rows < 0) | (rows >= self.weight.size(0))
        if self.weight.size(0) > 0:
            found = functional.embedding(rows.masked_fill(elsewhere, 0), self.weight)
            found = found.masked_fill(elsewhere.unsqueeze(-1), 0)
        else:  # a share in the graph all the same: backward must be alike everywhere
            found = self.weight.new_zeros((*tokens.shape, self.weight.size(1))) + self.weight.sum()
        if self.sequence_dim is None:
            return reduce_from_ranks(found, self.group)
        return reduce_scatter_sequence(found, self.sequence_dim, self.group)


class _CrossEntropy(torch.autograd.Function):
    @staticmethod
    def forward(ctx, logits, labels, vocabulary, group):
        first, count = _own(vocabulary, group)
        wide = torch.float64 if logits.dtype == torch.float64 else torch.float32
        scores = logits.to(wide).reshape(labels.numel(), count)
        flat = labels.reshape(-1)
        largest = scores.amax(1) if count > 0 else scores.new_full((flat.numel(),), -math.inf)
        largest = _all_reduce(largest, group, dist.ReduceOp.MAX)()
        scores = scores - largest.unsqueeze(1)
        mine = (flat >= first) & (flat < first + count)
        columns = (flat - first).masked_fill(~mine, 0).unsqueeze(1)
        chosen = scores.gather(1, columns).squeeze(1) if count > 0 else torch.zeros_like(largest)
        scores.exp_()
        sums = _all_reduce(torch.stack([scores.sum(1), chosen.masked_fill(~mine, 0)]), group)()
        scores.div_(sums[0].unsqueeze(1))
        counted = (flat >= 0) & (flat < vocabulary)
        ctx.save_for_backward(scores, columns, mine, counted)
        ctx.shape, ctx.dtype = logits.shape, logits.dtype
        return (sums[0].log() - sums[1]).masked_fill(~counted, 0).view(labels.shape)

    @staticmethod
    def backward(ctx, gradient):
        probabilities, columns, mine, counted = ctx.saved_tensors
        weights = gradient.reshape(-1, 1).masked_fill(~counted.unsqueeze(1), 0)
        found = probabilities * weights
        if found.size(1) > 0:
            found.scatter_add_(1, columns, (-weights).masked_fill(~mine.unsqueeze(1), 0))
        return found.view(ctx.shape).to(ctx.dtype), None, None, None


def vocab_parallel_cross_entropy(logits, labels, vocabulary, group=None):
    """Cross entropy of each token, from this rank's logits [.., vocabulary / ranks]: they stay where they are.

    A label outside of 0 … vocabulary − 1 costs nothing and gets no gradient. In float32, or float64 for such logits.
    """
    count = _own(vocabulary, group)[1]
    if logits.size(-1) != count:
        raise ValueError(f"rank {dist.get_rank(group)} of {_size(group)} has logits of {logits.size(-1)} words; its part of "
                         f"{vocabulary} is {count}")
    return _CrossEntropy.apply(logits, labels, vocabulary, group)


# ---- context parallel


def zigzag(length, ranks, rank):
    """The runs (first, count) of a sequence that a rank has: chunks rank and 2 · ranks − 1 − rank of 2 · ranks, so that
    a causal mask leaves every rank equally much to do. Neighbours are one run; empty ones are left out."""
    runs = []
    for chunk in (rank, 2 * ranks - 1 - rank):
        first, count = part_of(length, 2 * ranks, chunk)
        if runs and sum(runs[-1]) == first:
            runs[-1] = (runs[-1][0], runs[-1][1] + count)
        elif count > 0:
            runs.append((first, count))
    return runs


def positions(runs):
    """The places of a rank's tokens in the sequence: index_select of tokens and labels, and their positions."""
    return torch.cat([torch.arange(first, first + count) for first, count in runs] or [torch.arange(0)])


class _Ring:
    """Hops of a ring: what this rank sends to the next one, and gets from the one before, beside compute."""

    def __init__(self, group):
        self.group, self.rank, self.size = group, dist.get_rank(group), _size(group)
        self.next, self.previous = (self._world_rank((self.rank + step) % self.size) for step in (1, -1))

    def _world_rank(self, rank):
        return rank if self.group is None else dist.get_global_rank(self.group, rank)

    def hop(self, tensors, like, tag):
        """Returns a function that waits and has what came; `like` says what that is."""
        come = [torch.empty_like(tensor) for tensor in like]
        works = []
        for index, (out, into) in enumerate(zip(tensors, come)):
            works.append(dist.irecv(into, self.previous, group=self.group, tag=tag + index))
            works.append(dist.isend(out, self.next, group=self.group, tag=tag + index))

        def result(kept=tensors):  # lent until it is over
            for work in works:
                work.wait()
            return come
        return result


class _Attention:
    """Queries of one rank against blocks of keys and values that come in any order."""

    def __init__(self, query, runs, causal, scale):
        self.wide = torch.float64 if query.dtype == torch.float64 else torch.float32
        self.causal, self.scale, self.runs, self.query = causal, scale, runs, query.to(self.wide)

    def pairs(self, key_runs):
        """(slice of queries, slice of keys, mask or None) of which a causal mask leaves something."""
        q_from = 0
        for q_first, q_count in self.runs:
            k_from = 0
            for k_first, k_count in key_runs:
                if not self.causal or k_first < q_first + q_count:
                    mask = None
                    if self.causal and k_first + k_count - 1 > q_first:
                        mask = torch.arange(k_first, k_first + k_count) > \
                            torch.arange(q_first, q_first + q_count).unsqueeze(1)
                        mask = mask.to(self.query.device)
                    yield slice(q_from, q_from + q_count), slice(k_from, k_from + k_count), mask
                k_from += k_count
            q_from += q_count

    def scores(self, queries, keys, mask):
        scores = self.query[:, :, queries].matmul(keys.transpose(-2, -1)) * self.scale
        return scores if mask is None else scores.masked_fill(mask, -math.inf)


class _RingAttention(torch.autograd.Function):
    @staticmethod
    def forward(ctx, query, key, value, causal, scale, length, group):
        ring = _Ring(group)
        runs = [zigzag(length, ring.size, rank) for rank in range(ring.size)]
        attention = _Attention(query, runs[ring.rank], causal, scale)
        largest = attention.query.new_full((*query.shape[:3], 1), -math.inf)
        total, output = torch.zeros_like(largest), torch.zeros_like(attention.query)
        block = [key.contiguous(), value.contiguous()]
        for step in range(ring.size):
            source = (ring.rank - step) % ring.size
            coming = _coming(ring, block, runs, source, step)
            keys, values = (tensor.to(attention.wide) for tensor in block)
            for q, k, mask in attention.pairs(runs[source]):
                scores = attention.scores(q, keys[:, :, k], mask)
                new = torch.maximum(largest[:, :, q], scores.amax(-1, keepdim=True))
                shrink, weights = torch.exp(largest[:, :, q] - new), torch.exp(scores - new)
                total[:, :, q] = total[:, :, q] * shrink + weights.sum(-1, keepdim=True)
                output[:, :, q] = output[:, :, q] * shrink + weights.matmul(values[:, :, k])
                largest[:, :, q] = new
            block = coming()
        output = (output / total).to(query.dtype)
        ctx.save_for_backward(query, key, value, output, largest + total.log())
        ctx.causal, ctx.scale, ctx.runs, ctx.group = causal, scale, runs, group
        return output

    @staticmethod
    def backward(ctx, gradient):
        query, key, value, output, log_sum = ctx.saved_tensors
        ring, runs = _Ring(ctx.group), ctx.runs
        attention = _Attention(query, runs[ring.rank], ctx.causal, ctx.scale)
        gradient = gradient.to(attention.wide)
        delta = (gradient * output.to(attention.wide)).sum(-1, keepdim=True)
        q_gradient = torch.zeros_like(attention.query)
        block, passed = [key.contiguous(), value.contiguous()], None
        for step in range(ring.size):
            source = (ring.rank - step) % ring.size
            coming = _coming(ring, block, runs, source, step)
            keys, values = (tensor.to(attention.wide) for tensor in block)
            part = [torch.zeros_like(keys), torch.zeros_like(values)]
            for q, k, mask in attention.pairs(runs[source]):
                weights = torch.exp(attention.scores(q, keys[:, :, k], mask) - log_sum[:, :, q])
                part[1][:, :, k] += weights.transpose(-2, -1).matmul(gradient[:, :, q])
                slope = gradient[:, :, q].matmul(values[:, :, k].transpose(-2, -1))
                slope = (slope - delta[:, :, q]) * weights * ctx.scale
                q_gradient[:, :, q] += slope.matmul(keys[:, :, k])
                part[0][:, :, k] += slope.transpose(-2, -1).matmul(attention.query[:, :, q])
            if passed is not None:  # what the ranks before have added for this block
                part = [theirs + own for theirs, own in zip(passed(), part)]
            if ring.size > 1:  # the last hop brings it home
                passed = ring.hop(part, _blocks_of(part, runs[(source - 1) % ring.size]), 2)
            block = coming()
        if passed is not None:
            part = passed()
        return (q_gradient.to(query.dtype), part[0].to(key.dtype), part[1].to(value.dtype), None, None, None, None)


def _blocks_of(block, runs):
    """Tensors like these for a rank with these runs."""
    tokens = sum(count for _, count in runs)
    return [tensor.new_empty((*tensor.shape[:2], tokens, tensor.shape[3])) for tensor in block]


def _coming(ring, block, runs, source, step):
    if step + 1 == ring.size:
        return lambda: block
    return ring.hop(block, _blocks_of(block, runs[(source - 1) % ring.size]), 0)


def ring_attention(query, key, value, causal=True, scale=None, length=None, group=None):
    """Attention of this rank's queries over the keys of all ranks, [b, heads, s, d] of the tokens that `zigzag` gives it.

    Keys and values go round a ring while each rank computes on those that it has; in backward their gradients follow
    them. No rank has all scores. `length`: of the whole sequence; absent: every rank has as much as this one.
    `scale`: of the scores; absent: 1 / √d.
    """
    length = length or query.size(2) * _size(group)
    own = sum(count for _, count in zigzag(length, _size(group), dist.get_rank(group)))
    if query.size(2) != own or key.size(2) != own:
        raise ValueError(f"rank {dist.get_rank(group)} of {_size(group)} has {query.size(2)} tokens; its share of {length} is "
                         f"{own}")
    return _RingAttention.apply(query, key, value, causal, scale or 1 / math.sqrt(query.size(3)), length, group)
