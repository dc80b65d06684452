// bindings/libtorch/attention_blocks.hpp - attention of some queries over blocks of keys and values that come one
// after the other, in any order. No ranks here.
//
// Forward keeps for every query the largest score m so far, the sum l of exp(score − m) and the sum of values
// weighted so. A new block with larger scores scales both down by exp(m − m'):
//
//   m' = max(m, max s)     l' = l · e^(m − m') + Σ e^(s − m')     o' = o · e^(m − m') + Σ e^(s − m') v
//
// At the end o / l is the output, m + log l is kept. Backward has p = e^(s − (m + log l)) from it, and
//
//   dv = pᵀ · do     ds = p ∘ (do · vᵀ − Σ do ∘ o)     dq = ds · k     dk = dsᵀ · q
//
// Tokens are known by their place in the sequence: a block is computed by pairs of runs, of queries and of keys,
// and a pair of which a causal mask leaves nothing is not computed. Two runs are the same or have no token in
// common, so a query has met itself by the time its first masked pair is over, and m is finite.
//
// Heads of queries that share a head of keys are rows of one product: [b, kv_heads, heads/kv_heads · s, d].
#pragma once

#include <torch/torch.h>

#include <cstdint>
#include <vector>

#include "tutti/libtorch/context_parallel.hpp"

namespace tutti::libtorch {

using TokenRuns = std::vector<exchange::IndexRun>;

// What all pairs of an attention have in common. `options` is complete: length, scale, batch, heads.
struct AttentionSite {
  AttentionOptions options;
  std::int64_t batch = 0, kv_heads = 0, shared = 1;  // `shared`: queries of one key
};

// Scores, probabilities and sums: f32, or f64.
torch::ScalarType sum_type(const torch::Tensor& x);

// Queries of one run, or what belongs to them.
struct QueryRun {
  exchange::IndexRun run;
  torch::Tensor query;                     // [b, kv_heads, shared · s, d], scaled
  torch::Tensor largest, sum, output;      // forward
  torch::Tensor log_sum, delta, gradient;  // backward: per row; `gradient` of the output
  torch::Tensor query_gradient;            // backward
};

class ForwardBlocks {
 public:
  ForwardBlocks(AttentionSite site, const torch::Tensor& query, TokenRuns runs);
  // key, value [b, kv_heads, tokens of `runs`, d]
  void visit(const torch::Tensor& key, const torch::Tensor& value, const TokenRuns& runs);
  // [b, heads, s, d] in the queries' type, and the logarithms [b, heads, s].
  torch::Tensor output() const;
  torch::Tensor log_sums() const;

 private:
  AttentionSite site_;
  torch::ScalarType type_;
  std::vector<QueryRun> queries_;
};

class BackwardBlocks {
 public:
  BackwardBlocks(AttentionSite site, const torch::Tensor& query, TokenRuns runs,
                 const torch::Tensor& output, const torch::Tensor& log_sums,
                 const torch::Tensor& gradient);
  // Fills the gradients of key and value, which have their shape and the type of sums.
  void visit(const torch::Tensor& key, const torch::Tensor& value, const TokenRuns& runs,
             torch::Tensor key_gradient, torch::Tensor value_gradient);
  torch::Tensor query_gradient() const;

 private:
  AttentionSite site_;
  torch::ScalarType type_;
  std::vector<QueryRun> queries_;
};

}  // namespace tutti::libtorch
