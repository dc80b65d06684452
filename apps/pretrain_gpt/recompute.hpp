// apps/pretrain_gpt/recompute.hpp - which of a stage's layers keep their activations, and which are computed once more in
// backward; by Megatron's flags.
//
//   --recompute-granularity selective                              of each layer: scores and softmax of attention
//   --recompute-granularity full --recompute-method uniform N      all layers, in chunks of N whose inputs are kept
//   --recompute-granularity full --recompute-method block N        the first N layers of each stage, one by one
#pragma once

#include <vector>

#include "tutti/plan/memory.hpp"
#include "tutti/status.hpp"

namespace CLI {
class App;
}

namespace pretrain {

struct Flags;

// Of --recompute-granularity and --recompute-method.
inline constexpr const char* kSelective = "selective";
inline constexpr const char* kFull = "full";
inline constexpr const char* kUniform = "uniform";
inline constexpr const char* kBlock = "block";

// Consecutive layers of a stage that are computed again together, or kept.
struct LayerChunk {
  int first = 0;  // of the stage's
  int count = 0;
  bool again = false;
  bool operator==(const LayerChunk&) const = default;
};
std::vector<LayerChunk> chunks_of(const Flags& flags, int layers);

void add_recompute(CLI::App& app, Flags& flags);
tutti::Status check_recompute(const Flags& flags);
// For the arithmetic of memory.
tutti::plan::RecomputeShape recompute_shape(const Flags& flags);

}  // namespace pretrain
