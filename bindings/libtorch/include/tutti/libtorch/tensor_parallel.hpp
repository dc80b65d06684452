// tutti/libtorch/tensor_parallel.hpp - layers whose weights are shared out over ranks.
//
//   x ── column-parallel ──▶ heads or features of this rank ── row-parallel ──▶ sum over ranks
//        weight [out/n, in]                                      weight [out, in/n]
//
// Without sequence parallelism activations outside of the two are the same on all ranks: gradients of x, and
// the row-parallel outputs, are all_reduced. With it they are cut along the sequence, [b, s/n, h]: an
// all_gather stands before column-parallel layers and a reduce_scatter after row-parallel ones, and norms and
// dropout between them work on a part each. What their parameters get as gradient is then a part of a sum
// (Placed::partial), which the training layer adds up.
//
// The embedding and the head are cut by vocabulary; the cross entropy never has all logits in one place.
//
// Parts          sizes need not divide: parts are those of torch's chunk, as exchange::part_of has them.
//                Heads must.
// Ordering       all ranks run the same layers in the same order, as they do anyway. Backward does so too: for tensors
//                on the CPU autograd runs in the thread that called backward, and takes nodes by the order in which
//                forward made them, the latest first; the same graph, so the same order of collectives everywhere.
//                Anything that differs ends in Code::mismatch.
// Overlap        `overlap`: collectives are cut into pieces beside the matrix products they belong to, and weight
//                gradients are computed beside what is on its way (tutti/exchange/pieces.hpp).
// Failure        ParallelError, which has the Status; DataParallel::backward catches it.
// Thread-safety  as of modules: one thread at a time for each rank; ranks may be threads of one process.
//
//   auto tp = std::make_shared<TensorParallel>(group, TensorParallelOptions{.sequence_parallel = true});
//   auto fc1 = register_module("fc1", std::make_shared<ColumnParallelLinear>(tp, h, Features{{4 * h}}));
//   auto fc2 = register_module("fc2", std::make_shared<RowParallelLinear>(tp, Features{{4 * h}}, h));
//   x = x + fc2->forward(torch::gelu(fc1->forward(norm->forward(x))));          // [b, s/n, h]
#pragma once

#include <torch/torch.h>

#include <cstdint>
#include <memory>
#include <vector>

#include "tutti/exchange.hpp"
#include "tutti/group.hpp"
#include "tutti/libtorch/placed.hpp"
#include "tutti/libtorch/weight_queue.hpp"

namespace tutti::libtorch {

struct TensorParallelOptions {
  bool sequence_parallel = false;
  std::int64_t sequence_dim = 1;
  std::int64_t sequence_length = 0;  // of the whole; 0: every rank has as much as this one
  bool overlap = false;
  // Into how many pieces; 0: as predicted from the group's speed and flops_per_s, which must be given then, and
  // be the same on all ranks.
  int pieces = 4;
  double flops_per_s = 0;
  // Keep a gathered input for backward instead of gathering it again: n times the memory, a collective less.
  bool keep_gathered = false;
};

// The ranks that share the layers, and what they remember together.
class TensorParallel {
 public:
  // A null group: this rank alone.
  explicit TensorParallel(std::shared_ptr<Group> group, TensorParallelOptions options = {});
  ~TensorParallel();

  int rank() const;
  int size() const;
  // Only with more than one rank.
  Group& group() const;
  const TensorParallelOptions& options() const;

  // What this rank has of a parameter. Layers say so of theirs; one that nobody spoke of is whole on every rank.
  void place(const torch::Tensor& parameter, Placed placed);
  Placed placed(const torch::Tensor& parameter) const;
  // Gradients of all parameters below `module` are parts of sums: norms and biases on a split sequence. Does
  // nothing without sequence parallelism.
  void mark_partial(const torch::nn::Module& module);

  // What exchanges took since the last call.
  exchange::ExchangeTimes take_times();
  void add_times(const exchange::ExchangeTimes& times);

  // Into how many pieces a collective on an array of so many bytes is cut beside so many operations.
  int pieces(Collective collective, std::size_t bytes, double flops);

  // Memory for one exchange, symmetric, as bytes: used again by the next. Collective where it has to grow, so
  // all ranks ask for the same.
  torch::Tensor scratch(std::int64_t bytes, torch::Device device);

 private:
  struct State;
  std::unique_ptr<State> state_;
};
using SharedTensorParallel = std::shared_ptr<TensorParallel>;

// ---- conjugate functions: forward · backward

torch::Tensor copy_to_ranks(const SharedTensorParallel& ranks,
                            const torch::Tensor& x);  // x · all_reduce
torch::Tensor reduce_from_ranks(const SharedTensorParallel& ranks,
                                const torch::Tensor& x);  // all_reduce · g
// all_gather · own part, where what follows is the same on all ranks. `length`: of the whole; 0: equal parts.
torch::Tensor gather_from_ranks(const SharedTensorParallel& ranks, const torch::Tensor& x,
                                std::int64_t dim, std::int64_t length = 0);
// own part · all_gather
torch::Tensor scatter_to_ranks(const SharedTensorParallel& ranks, const torch::Tensor& x,
                               std::int64_t dim);
// Along the sequence, between parts of it and layers that are split otherwise.
torch::Tensor gather_sequence(const SharedTensorParallel& ranks,
                              const torch::Tensor& x);  // all_gather · reduce_scatter
torch::Tensor reduce_scatter_sequence(const SharedTensorParallel& ranks,
                                      const torch::Tensor& x);  // reduce_scatter · all_gather

// ---- linear layers

// Features of a layer's split side, in dimensions of which one is cut: {{4h}} or {{3, heads, d}, 1}. A dimension
// that stands among others, such as heads, must divide by the number of ranks.
struct Features {
  std::vector<std::int64_t> whole;
  std::size_t cut = 0;

  std::int64_t count() const;
};

// The same with weights from elsewhere, such as a tied embedding. `bias` may be undefined. With a queue the
// weight's product waits there.
torch::Tensor column_parallel_linear(const SharedTensorParallel& ranks, const torch::Tensor& x,
                                     const torch::Tensor& weight, const torch::Tensor& bias,
                                     WeightQueue* queue = nullptr);
torch::Tensor row_parallel_linear(const SharedTensorParallel& ranks, const torch::Tensor& x,
                                  const torch::Tensor& weight, const torch::Tensor& bias,
                                  WeightQueue* queue = nullptr);
// Not split at all.
torch::Tensor queued_linear(const torch::Tensor& x, const torch::Tensor& weight,
                            const torch::Tensor& bias, WeightQueue* queue);

// [.., in] → [.., this rank's features]
class ColumnParallelLinear : public torch::nn::Module {
 public:
  ColumnParallelLinear(SharedTensorParallel ranks, std::int64_t in, Features out, bool bias = true);
  torch::Tensor forward(const torch::Tensor& x);

  torch::Tensor weight, bias;    // [out/n, in], [out/n]; not initialised
  WeightQueue* queue = nullptr;  // lent

 private:
  SharedTensorParallel ranks_;
};

// [.., this rank's features] → [.., out]. The bias is added once, after the sum.
class RowParallelLinear : public torch::nn::Module {
 public:
  RowParallelLinear(SharedTensorParallel ranks, Features in, std::int64_t out, bool bias = true);
  torch::Tensor forward(const torch::Tensor& x);

  torch::Tensor weight, bias;  // [out, in/n], [out]; not initialised
  WeightQueue* queue = nullptr;

 private:
  SharedTensorParallel ranks_;
};

// ---- vocabulary

// Tokens [b, s], the same on all ranks → [b, s, width], or this rank's part of the sequence.
class VocabParallelEmbedding : public torch::nn::Module {
 public:
  VocabParallelEmbedding(SharedTensorParallel ranks, std::int64_t vocabulary, std::int64_t width);
  torch::Tensor forward(const torch::Tensor& tokens);

  torch::Tensor weight;  // [vocabulary/n, width]; not initialised

 private:
  SharedTensorParallel ranks_;
  exchange::IndexRun own_;
};

// Cross entropy of each token, from this rank's logits [.., vocabulary/n] and labels [..] of the whole vocabulary: two
// small all_reduces, and the logits stay where they are. In f32, or f64 for such logits. A label outside of
// 0 … vocabulary − 1 costs nothing and gets no gradient; others are weighted by multiplying the result.
torch::Tensor vocab_parallel_cross_entropy(const SharedTensorParallel& ranks,
                                           const torch::Tensor& logits, const torch::Tensor& labels,
                                           std::int64_t vocabulary);

}  // namespace tutti::libtorch
