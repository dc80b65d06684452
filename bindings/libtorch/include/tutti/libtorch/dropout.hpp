// tutti/libtorch/dropout.hpp - dropout whose mask does not depend on how the model is split.
//
// Whether an element is kept follows from (seed, step, micro-batch, site) and its place in the whole tensor
// alone: ranks that hold parts of it, whatever parts, drop together what one rank with all of it would drop.
// Nothing is saved for backward, which works the mask out again.
//
// The bits are Philox 4x32-10 (Salmon et al. 2011): element i of the whole has word i mod 4 of the block with the
// counter {i / 4 (64 bits), micro-batch, site} under a key mixed from seed and step. It is dropped when that word is
// less than p · 2^32. On the CPU a vectorised loop; elsewhere the same bits by torch's integer operations.
//
//   // [b, s, h] of which this rank has 2 · 64 tokens in the middle of the sequence
//   x = dropout(x, 0.1, {seed, step, micro_batch, site}, {held_all(b), {s, {{64, 128}}}, held_all(h)});
#pragma once

#include <torch/torch.h>

#include <cstdint>
#include <vector>

#include "tutti/exchange/sequence_cut.hpp"

namespace tutti::libtorch {

struct DropoutKey {
  std::uint64_t seed = 0;
  std::int64_t step = 0;
  std::uint32_t micro_batch = 0;
  std::uint32_t site = 0;  // which dropout of the model: no two alike
};

// What a rank has of one dimension of a whole tensor.
struct HeldIndices {
  std::int64_t whole = 0;
  std::vector<exchange::IndexRun> runs;
};
inline HeldIndices held_all(std::int64_t whole) { return {whole, {{0, whole}}}; }

// `where` has an entry for each dimension of x. Kept elements are multiplied by 1 / (1 − p). f32, f64, bf16,
// f16.
// Differentiable. ParallelError when p is not in [0, 1) or `where` does not fit x.
torch::Tensor dropout(const torch::Tensor& x, double p, const DropoutKey& key,
                      const std::vector<HeldIndices>& where);

// The same by torch's integer operations, on any device: what the fast path is tested against.
torch::Tensor dropout_by_torch(const torch::Tensor& x, double p, const DropoutKey& key,
                               const std::vector<HeldIndices>& where);

}  // namespace tutti::libtorch
