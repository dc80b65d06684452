// tutti/libtorch/recompute.hpp - a part of forward whose activations are not kept: backward computes them once more.
//
// Of the part its inputs alone are kept. When backward comes to it, the same function runs again on them, with a graph
// this time, and then that graph's backward: the price of that memory is a forward more. Values and gradients have the
// bits that they would have without it, as long as the function gives the same bits for the same inputs.
//
//   forward    x ─▶ [ part, without a graph ] ─▶ y ─▶ …         kept: x
//   backward   x ─▶ [ part, with one ] ─▶ y, then its backward: gradients of x and of the parameters that it reads
//
// It works beside all of tutti's training: gates and WeightScopes in it are passed again, collectives in it (of tensor
// and context parallel layers) run again, in the same order on all ranks, and so does dropout by place (dropout.hpp).
// What torch draws itself is drawn from the state that its generators had in forward. Parts may be nested.
//
// Ordering       as the function's own collectives: on all ranks alike.
// Buffers        inputs must not be changed before backward. What the function refers to outlives the graph.
// Thread-safety  one thread at a time; torch's generators are the process's.
// Failure        what the function throws comes out of forward or backward.
//
//   x = tutti::libtorch::recompute([block, &tables](const torch::Tensor& x) { return block->forward(x, tables); }, x);
#pragma once

#include <torch/torch.h>

#include <functional>
#include <vector>

namespace tutti::libtorch {

struct RecomputeOptions {
  // False where nothing in it draws from torch's generators: saves a copy of their state.
  bool keeps_random_state = true;
};

// Outputs are the function's. Inputs need not have gradients: parameters get theirs all the same. Without autograd
// (torch::NoGradGuard) it just runs.
std::vector<torch::Tensor> recompute(
    std::function<std::vector<torch::Tensor>(const std::vector<torch::Tensor>&)> part,
    const std::vector<torch::Tensor>& inputs, RecomputeOptions options = {});
torch::Tensor recompute(std::function<torch::Tensor(const torch::Tensor&)> part,
                        const torch::Tensor& input, RecomputeOptions options = {});

}  // namespace tutti::libtorch
