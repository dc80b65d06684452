// train_torch/parallel_support.hpp - ranks as threads, each with its part of a layer; the unsplit layer is the judge.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "adapter_support.hpp"
#include "tutti/libtorch/tensor_parallel.hpp"

namespace parallel_test {

using tutti::Group;
using tutti::libtorch::Features;
using tutti::libtorch::Placed;
using tutti::libtorch::SharedTensorParallel;
using tutti::libtorch::TensorParallel;
using tutti::libtorch::TensorParallelOptions;
using Tensors = std::vector<torch::Tensor>;
using Shape = std::vector<std::int64_t>;

// What `body` returns on each rank.
template <class Body>
auto on_each(int ranks, Body&& body) {
  using Answer = decltype(body(std::shared_ptr<Group>()));
  std::vector<Answer> answers(static_cast<std::size_t>(ranks));
  adapter_test::on_ranks(ranks, [&](std::shared_ptr<Group> group) {
    answers[static_cast<std::size_t>(group->rank())] = body(group);
  });
  return answers;
}

// Numbers that tell places apart, drawn from a seed; the same in every thread.
inline torch::Tensor draw(const Shape& shape, std::uint64_t seed,
                          torch::ScalarType type = torch::kDouble) {
  auto values = torch::empty(shape, torch::kDouble);
  values.normal_(0.0, 1.0, at::detail::createCPUGenerator(seed));
  return values.to(type);
}

inline torch::Tensor leaf(const torch::Tensor& values) {
  return values.detach().clone().requires_grad_(true);
}

// Fills a layer's parameter with its box of `whole`.
inline void set_part(const TensorParallel& ranks, torch::Tensor& parameter,
                     const torch::Tensor& whole) {
  torch::NoGradGuard no_grad;
  const Placed placed = ranks.placed(parameter);
  parameter.set_data(
      tutti::libtorch::box_of(whole, placed).contiguous().view(parameter.sizes()).clone());
}

// What the ranks have of a parameter's gradient, put together as Placed says.
inline torch::Tensor whole_gradient(const std::vector<Placed>& placed, const Tensors& gradients) {
  auto whole = torch::zeros(placed[0].whole, gradients[0].options());
  for (std::size_t rank = 0; rank < placed.size(); ++rank) {
    auto box = tutti::libtorch::box_of(whole, placed[rank]);
    const auto part = gradients[rank].view(placed[rank].shape);
    if (placed[rank].partial)
      box.add_(part);
    else
      box.copy_(part);
  }
  return whole.view(placed[0].whole_shape);
}

inline void expect_close(const torch::Tensor& got, const torch::Tensor& wanted, double tolerance,
                         const std::string& what) {
  ASSERT_EQ(got.sizes(), wanted.sizes()) << what;
  if (got.numel() == 0) return;
  const auto wide = wanted.to(torch::kDouble);
  const double scale = std::max(1.0, wide.abs().max().item<double>());
  const double error = (got.to(torch::kDouble) - wide).abs().max().item<double>();
  EXPECT_LE(error, tolerance * scale) << what;
}

}  // namespace parallel_test
