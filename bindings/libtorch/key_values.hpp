// bindings/libtorch/key_values.hpp - how the keys and values of all ranks come to this one, block by block, and how
// gradients of theirs go back to their owners.
#pragma once

#include <torch/torch.h>

#include <functional>
#include <memory>
#include <vector>

#include "attention_blocks.hpp"

namespace tutti::libtorch {

// Tensors of one rank: [b, kv_heads, s of that rank, d].
struct KeyValue {
  torch::Tensor key, value;
};

// Which ranks there are, and what they have. The same for all exchanges.
struct SequenceShares {
  int rank = 0;
  std::vector<TokenRuns> runs;  // by rank

  std::vector<std::size_t> counts() const;
};

class KeyValueExchange {
 public:
  using Visit = std::function<void(int source, const KeyValue& block)>;
  // `gradient` is to be filled, in the type of sums.
  using VisitBack = std::function<void(int source, const KeyValue& block, KeyValue& gradient)>;

  virtual ~KeyValueExchange() = default;
  // Calls `visit` for every rank's block, the own one first. Throws ParallelError.
  virtual void pass(const SequenceShares& shares, const KeyValue& own, const Visit& visit) = 0;
  // The same, and returns the sum of what all ranks' visits made of the own block's gradient.
  virtual KeyValue pass_back(const SequenceShares& shares, const KeyValue& own,
                             const VisitBack& visit) = 0;
};

using NoteTimes = std::function<void(const exchange::ExchangeTimes&)>;

std::unique_ptr<KeyValueExchange> make_alone();
std::unique_ptr<KeyValueExchange> make_ring(std::shared_ptr<Group> group, int window,
                                            NoteTimes note);
std::unique_ptr<KeyValueExchange> make_gather(std::shared_ptr<Group> group, NoteTimes note);

}  // namespace tutti::libtorch
