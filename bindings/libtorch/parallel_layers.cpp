// The linear layers of tutti/libtorch/tensor_parallel.hpp.
#include <functional>
#include <numeric>

#include "parallel_linear.hpp"
#include "tensor_calls.hpp"

namespace tutti::libtorch {

namespace {

bool splits(const SharedTensorParallel& ranks) { return ranks != nullptr && ranks->size() > 1; }

exchange::IndexRun own_features(const TensorParallel& ranks, const Features& features) {
  const std::int64_t length = features.whole.at(features.cut);
  if (features.whole.size() > 1 && length % ranks.size() != 0)
    throw_invalid(std::to_string(length) + " heads cannot be shared out evenly to " +
                  std::to_string(ranks.size()) +
                  " tensor-parallel ranks; take a number of ranks that divides them");
  return exchange::part_of(length, ranks.size(), ranks.rank());
}

std::int64_t count_in(const std::vector<std::int64_t>& shape) {
  return std::accumulate(shape.begin(), shape.end(), std::int64_t{1}, std::multiplies<>());
}

std::vector<std::int64_t> together(std::vector<std::int64_t> first,
                                   const std::vector<std::int64_t>& then) {
  first.insert(first.end(), then.begin(), then.end());
  return first;
}

}  // namespace

std::int64_t Features::count() const { return count_in(whole); }

torch::Tensor queued_linear(const torch::Tensor& x, const torch::Tensor& weight,
                            const torch::Tensor& bias, WeightQueue* queue) {
  return linear_by({nullptr, LinearInput::as_is, LinearOutput::as_is, queue}, x, weight, bias);
}

torch::Tensor column_parallel_linear(const SharedTensorParallel& ranks, const torch::Tensor& x,
                                     const torch::Tensor& weight, const torch::Tensor& bias,
                                     WeightQueue* queue) {
  if (!splits(ranks)) return queued_linear(x, weight, bias, queue);
  const auto input =
      ranks->options().sequence_parallel ? LinearInput::gathered : LinearInput::copied;
  return linear_by({ranks, input, LinearOutput::as_is, queue}, x, weight, bias);
}

torch::Tensor row_parallel_linear(const SharedTensorParallel& ranks, const torch::Tensor& x,
                                  const torch::Tensor& weight, const torch::Tensor& bias,
                                  WeightQueue* queue) {
  if (!splits(ranks)) return queued_linear(x, weight, bias, queue);
  const auto output =
      ranks->options().sequence_parallel ? LinearOutput::scattered : LinearOutput::reduced;
  auto y = linear_by({ranks, LinearInput::as_is, output, queue}, x, weight, {});
  return bias.defined() ? y + bias : y;
}

ColumnParallelLinear::ColumnParallelLinear(SharedTensorParallel ranks, std::int64_t in,
                                           Features out, bool with_bias)
    : ranks_(std::move(ranks)) {
  const auto own = own_features(*ranks_, out);
  auto placed =
      Placed::part_of({out.count(), in}, together(out.whole, {in}), out.cut, own.first, own.count);
  weight = register_parameter("weight", torch::empty({count_in(placed.shape) / in, in}));
  ranks_->place(weight, placed);
  if (!with_bias) return;
  placed = Placed::part_of({out.count()}, out.whole, out.cut, own.first, own.count);
  bias = register_parameter("bias", torch::empty({count_in(placed.shape)}));
  ranks_->place(bias, placed);
}

torch::Tensor ColumnParallelLinear::forward(const torch::Tensor& x) {
  return column_parallel_linear(ranks_, x, weight, bias, queue);
}

RowParallelLinear::RowParallelLinear(SharedTensorParallel ranks, Features in, std::int64_t out,
                                     bool with_bias)
    : ranks_(std::move(ranks)) {
  const auto own = own_features(*ranks_, in);
  auto placed = Placed::part_of({out, in.count()}, together({out}, in.whole), in.cut + 1, own.first,
                                own.count);
  weight = register_parameter("weight", torch::empty({out, count_in(placed.shape) / out}));
  ranks_->place(weight, placed);
  if (!with_bias) return;
  bias = register_parameter("bias", torch::empty({out}));
  placed = Placed::whole_of(bias);
  // Each rank adds it to its part of the sequence.
  placed.partial = splits(ranks_) && ranks_->options().sequence_parallel;
  ranks_->place(bias, placed);
}

torch::Tensor RowParallelLinear::forward(const torch::Tensor& x) {
  return row_parallel_linear(ranks_, x, weight, bias, queue);
}

}  // namespace tutti::libtorch
