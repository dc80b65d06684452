// bindings/libtorch/head_exchange.hpp - from all heads of some tokens to all tokens of some heads, and back.
//
//   [b, heads, s of this rank, d]   ── all_to_all ──▶   [b, heads / n, s of all ranks, d]
//
// Tokens come out in the order of the sequence, whatever runs of it the ranks have.
#pragma once

#include <torch/torch.h>

#include <memory>

#include "key_values.hpp"

namespace tutti::libtorch {

struct HeadExchange {
  std::shared_ptr<Group> group;
  SequenceShares shares;  // of the group's ranks
  NoteTimes note;
};

// The runs of all of them, in order.
TokenRuns runs_of_all(const SequenceShares& shares);

// Differentiable; each is the other's adjoint. ParallelError where heads do not divide.
torch::Tensor to_all_tokens(const std::shared_ptr<const HeadExchange>& ranks,
                            const torch::Tensor& x);
torch::Tensor to_all_heads(const std::shared_ptr<const HeadExchange>& ranks,
                           const torch::Tensor& x);

}  // namespace tutti::libtorch
