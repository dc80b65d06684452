// tutti/plan/memory.hpp - what one replica of a model takes of a device's memory, by kind.
//
// docs/algorithms/model_arithmetic.md has every formula.
//
// Thread-safety  values and pure functions.
#pragma once

#include "tutti/plan/model.hpp"

namespace tutti::plan {
inline namespace [[gnu::visibility("default")]] v1 {

// A replica that is trained data-parallel, with gradients in f32.
struct ReplicaShape {
  int ranks = 1;
  int zero =
      0;  // what a rank keeps its part of: 1 the optimizer's state, 2 gradients, 3 weights, too
  bool bf16 = false;    // weights and activations; else f32
  int moments = 2;      // AdamW: 2, SGD: 1
  int micro_batch = 1;  // sequences
  int seq = 0;          // tokens of a sequence
};

// Bytes. Activations: all that backward reads, of a forward that keeps the attention's scores, and what comes and goes
// with it, at the time when it is most. Buffers: what is whole for a while, of gradients before they are scattered and of
// weights that were gathered.
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
