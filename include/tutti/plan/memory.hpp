// tutti/plan/memory.hpp - what one replica of a model takes of a device's memory, by kind.
//
// docs/algorithms/model_arithmetic.md has every formula.
//
// Thread-safety  values and pure functions.
#pragma once

#include <cstdint>

#include "tutti/plan/model.hpp"

namespace tutti::plan {
inline namespace [[gnu::visibility("default")]] v1 {

// What backward computes once more instead of keeping it.
struct RecomputeShape {
  enum class Kind : std::uint8_t {
    none,
    selective,  // attention's scores
    uniform,    // all layers, in chunks of so many
    block,      // so many of the layers, one by one
  };
  Kind kind = Kind::none;
  int layers = 0;  // of uniform and block
};

// A replica that is trained data-parallel, with gradients in f32.
struct ReplicaShape {
  int ranks = 1;
  int zero =
      0;  // what a rank keeps its part of: 1 the optimizer's state, 2 gradients, 3 weights, too
  bool bf16 = false;    // weights and activations, or fp16; else f32
  int moments = 2;      // AdamW: 2, SGD: 1
  int micro_batch = 1;  // sequences
  int seq = 0;          // tokens of a sequence
  RecomputeShape recompute{};
  bool grad_reduce_in_bf16 = false;
};

// Bytes. Activations: all that backward reads, what of it is computed again at once, and what comes and goes with it, at
// the time when it is most. Buffers: what is whole for a while, of gradients before they are scattered and of weights that
// were gathered.
struct ReplicaMemory {
  double weights = 0;
  double gradients = 0;
  double optimizer = 0;
  double activations = 0;
  double buffers = 0;
};
ReplicaMemory replica_memory(const Model& model, const ReplicaShape& shape);

}  // namespace v1
}  // namespace tutti::plan
