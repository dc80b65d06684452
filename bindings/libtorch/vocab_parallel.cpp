// What of tutti/libtorch/tensor_parallel.hpp is cut by vocabulary.
#include <limits>

#include "rank_collectives.hpp"
#include "tensor_calls.hpp"

namespace tutti::libtorch {

namespace {

exchange::IndexRun own_words(const TensorParallel& ranks, std::int64_t vocabulary) {
  return exchange::part_of(vocabulary, ranks.size(), ranks.rank());
}

// Losses are the same on all ranks, and so are their gradients: backward needs nobody.
struct CrossEntropy : torch::autograd::Function<CrossEntropy> {
  static torch::Tensor forward(torch::autograd::AutogradContext* context,
                               const torch::Tensor& logits, const torch::Tensor& labels,
                               const SharedTensorParallel& ranks, std::int64_t vocabulary) {
    const auto own = own_words(*ranks, vocabulary);
    const bool wide = logits.scalar_type() == torch::kDouble;
    auto scores =
        logits.to(wide ? torch::kDouble : torch::kFloat).reshape({labels.numel(), own.count});
    const auto flat = labels.reshape({-1});
    auto largest = own.count > 0
                       ? scores.amax(1)
                       : torch::full({flat.numel()}, -std::numeric_limits<double>::infinity(),
                                     scores.options());
    largest = all_reduced(*ranks, largest, ReduceOp::max);
    scores = scores - largest.unsqueeze(1);
    const auto mine = flat.ge(own.first).logical_and(flat.lt(own.end()));
    const auto columns = (flat - own.first).masked_fill(mine.logical_not(), 0).unsqueeze(1);
    const auto chosen =
        own.count > 0 ? scores.gather(1, columns).squeeze(1) : torch::zeros_like(largest);
    scores.exp_();
    // Row 0: sums of the exponentials; row 1: the labels' scores, of which one rank at most has each.
    const auto sums = all_reduced(
        *ranks, torch::stack({scores.sum(1), chosen.masked_fill(mine.logical_not(), 0)}));
    scores.div_(sums[0].unsqueeze(1));
    const auto counted = flat.ge(0).logical_and(flat.lt(vocabulary));
    context->save_for_backward({scores, columns, mine, counted});
    context->saved_data["shape"] = logits.sizes().vec();
    context->saved_data["type"] = static_cast<std::int64_t>(logits.scalar_type());
    const auto losses = (sums[0].log() - sums[1]).masked_fill(counted.logical_not(), 0);
    return losses.view(labels.sizes());
  }

  static torch::autograd::variable_list backward(torch::autograd::AutogradContext* context,
                                                 torch::autograd::variable_list gradients) {
    const auto saved = context->get_saved_variables();
    const auto& probabilities = saved[0];
    const auto weights =
        gradients[0].reshape({-1, 1}).masked_fill(saved[3].logical_not().unsqueeze(1), 0);
    auto found = probabilities * weights;
    if (found.size(1) > 0)
      found.scatter_add_(1, saved[1],
                         weights.neg().masked_fill(saved[2].logical_not().unsqueeze(1), 0));
    const auto type = static_cast<torch::ScalarType>(context->saved_data["type"].toInt());
    return {found.view(context->saved_data["shape"].toIntVector()).to(type), torch::Tensor(),
            torch::Tensor(), torch::Tensor()};
  }
};

}  // namespace

VocabParallelEmbedding::VocabParallelEmbedding(SharedTensorParallel ranks, std::int64_t vocabulary,
                                               std::int64_t width)
    : ranks_(std::move(ranks)), own_(own_words(*ranks_, vocabulary)) {
  weight = register_parameter("weight", torch::empty({own_.count, width}));
  ranks_->place(
      weight, Placed::part_of({vocabulary, width}, {vocabulary, width}, 0, own_.first, own_.count));
}

torch::Tensor VocabParallelEmbedding::forward(const torch::Tensor& tokens) {
  if (ranks_->size() == 1) return torch::embedding(weight, tokens);
  const auto elsewhere = tokens.lt(own_.first).logical_or(tokens.ge(own_.end()));
  const auto rows = (tokens - own_.first).masked_fill(elsewhere, 0);
  auto shape = tokens.sizes().vec();
  shape.push_back(weight.size(1));
  // A rank without words has a share in the graph all the same: backward must be alike everywhere.
  const auto found = own_.count > 0
                         ? torch::embedding(weight, rows).masked_fill(elsewhere.unsqueeze(-1), 0)
                         : torch::zeros(shape, weight.options()) + weight.sum();
  return ranks_->options().sequence_parallel ? reduce_scatter_sequence(ranks_, found)
                                             : reduce_from_ranks(ranks_, found);
}

torch::Tensor vocab_parallel_cross_entropy(const SharedTensorParallel& ranks,
                                           const torch::Tensor& logits, const torch::Tensor& labels,
                                           std::int64_t vocabulary) {
  const auto own = own_words(*ranks, vocabulary);
  if (logits.size(-1) != own.count)
    throw_invalid("rank " + std::to_string(ranks->rank()) + " of " + std::to_string(ranks->size()) +
                  " has logits of " + std::to_string(logits.size(-1)) + " words; its part of " +
                  std::to_string(vocabulary) + " is " + std::to_string(own.count));
  return CrossEntropy::apply(logits, labels, ranks, vocabulary);
}

}  // namespace tutti::libtorch
