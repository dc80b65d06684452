// tutti/libtorch/context_parallel.hpp - attention over a sequence that is cut over ranks.
//
// Every rank has the queries, keys and values of its tokens, and gets the attention of its queries over the keys
// of all ranks. Blocks of keys and values are computed on as they come: what a query has summed up so far is
// merged by its largest score, so no rank ever has all of them, nor a matrix of all scores. Backward
// works the probabilities out again from the saved logarithm of their sum.
//
//   ring              (p2p)       keys and values go round a ring, beside compute; with `window` a ring of rings
//   all_gather        (allgather) everybody gets all of them at once
//   all_to_all        (a2a)       each rank gets all tokens of a part of the heads
//   all_to_all_ring   (a2a+p2p)   the former among `inner` neighbours, the ring between such groups
//
// In parentheses: the words of --cp-comm-type. Causal attention of a zigzag cut is balanced: blocks that a mask
// leaves nothing of are skipped, and every rank has as many of them.
//
// Ordering       create and attention are collective; backwards run in the same order on all ranks, as
//                tensor_parallel.hpp says.
// Numbers        scores and sums in f32, for f64 tensors in f64; keys and values travel as they are, their
//                gradients as sums are kept.
// Failure        ParallelError from attention and its backward; Status from create.
// Thread-safety  one thread at a time for each rank; ranks may be threads of one process.
//
//   auto cp = ContextParallel::create(group, {.exchange = ContextExchange::ring});
//   const auto own = (*cp)->runs(4096);                                // cut tokens, labels, positions by it
//   auto mixed = attention(*cp, query, key, value, {.causal = true});  // [b, heads, s/n, d]
#pragma once

#include <torch/torch.h>

#include <cstdint>
#include <memory>
#include <optional>
#include <string_view>
#include <vector>

#include "tutti/exchange.hpp"
#include "tutti/group.hpp"
#include "tutti/libtorch/dropout.hpp"

namespace tutti::libtorch {

enum class ContextExchange : std::uint8_t { ring, all_gather, all_to_all, all_to_all_ring };
std::string_view to_string(ContextExchange exchange) noexcept;
// p2p, allgather, a2a or a2a+p2p.
std::optional<ContextExchange> parse_cp_comm_type(std::string_view word) noexcept;

struct ContextParallelOptions {
  ContextExchange exchange = ContextExchange::ring;
  exchange::SequenceCut cut = exchange::SequenceCut::zigzag;
  int window = 0;  // ring: neighbouring ranks of an inner ring, those of a host; 0: one ring
  int inner = 0;   // all_to_all_ring: neighbouring ranks that exchange heads
};

class ContextParallel {
 public:
  // Collective. A null group: this rank alone. invalid_argument when window or inner do not divide the group.
  static Result<std::shared_ptr<ContextParallel>> create(std::shared_ptr<Group> group,
                                                         ContextParallelOptions options = {});
  ~ContextParallel();

  int rank() const;
  int size() const;
  const ContextParallelOptions& options() const;
  // This rank's tokens of a sequence, in the order in which it has them.
  std::vector<exchange::IndexRun> runs(std::int64_t length) const;
  // What exchanges took since the last call.
  exchange::ExchangeTimes take_times();

  // Of the source tree.
  struct State;
  State& state() const { return *state_; }

 private:
  explicit ContextParallel(std::unique_ptr<State> state);
  std::unique_ptr<State> state_;
};

struct AttentionOptions {
  bool causal = true;
  double scale = 0;         // of the scores; 0: 1 / √d
  std::int64_t length = 0;  // of the whole sequence; 0: every rank has as much as this one
  // Of the probabilities, by their place in the whole [batch, heads, length, length]. Batch and heads of which
  // nothing is said are all there are.
  double dropout = 0;
  DropoutKey key{};
  HeldIndices batch{}, heads{};
};

// query [b, heads, s, d], key and value [b, kv_heads, s, d] of this rank's s tokens → [b, heads, s, d].
// kv_heads divides heads: so many queries share one. Differentiable.
torch::Tensor attention(const std::shared_ptr<ContextParallel>& ranks, const torch::Tensor& query,
                        const torch::Tensor& key, const torch::Tensor& value,
                        const AttentionOptions& options = {});

}  // namespace tutti::libtorch
