// pipeline/build/draft.hpp - how a builder writes one rank's pipeline program down: only what is
// computed, turn by turn. The transfers follow from it.
//
//   turn       F2     │   B0  W0 │   F3              what stands between two batches
//   batch          send 2      send 0   send 3       what the turn has to send, and what the next turn
//                  recv 0      recv 3   recv 1       that transfers anything has to receive
//
// Micro-batches that there are not (a round that is not full) may be written down like others, and are
// left out in the end, with their transfers. Leaving all of a micro-batch out on every rank cannot make
// anybody wait for longer, so what was proved for full rounds holds.
#pragma once

#include <initializer_list>
#include <optional>
#include <vector>

#include "tutti/pipeline/schedule.hpp"

namespace tutti::pipeline::builders {

struct ComputeOp {
  PipelineOpKind kind;
  int micro_batch;
  int virtual_stage = 0;
};

class ProgramDraft {
 public:
  ProgramDraft(PipelineKind kind, const PipelineShape& shape, int rank) {
    program_.kind = kind;
    program_.shape = shape;
    program_.rank = rank;
  }
  void turn(std::initializer_list<ComputeOp> ops) { turns_.emplace_back(ops); }
  PipelineProgram take();

 private:
  using Turn = std::vector<ComputeOp>;

  // With whom an op has such a transfer; kNobody: it has none.
  int peer_for(const ComputeOp& op, std::optional<PipelineOpKind> transfer) const;
  bool transfers(const Turn& turn) const;
  std::size_t next_to_receive(std::size_t at) const;
  void add(const ComputeOp& op, std::optional<PipelineOpKind> transfer);
  void add_receives(const Turn& turn);

  PipelineProgram program_;
  std::vector<Turn> turns_;
  int batch_ = 0;
};

// One file each.
PipelineProgram gpipe(const PipelineShape& shape, int rank);
PipelineProgram one_f_one_b(const PipelineShape& shape, int rank);
PipelineProgram interleaved(const PipelineShape& shape, int rank);
PipelineProgram zb_h1(const PipelineShape& shape, int rank);
PipelineProgram forward(const PipelineShape& shape, int rank);

// Rounds of `stages` micro-batches, in each of which every virtual stage has its turn: the order of an
// interleaved rank's forwards, k = 0 … rounds · stages · virtual_stages − 1. Backwards: the last virtual stage first.
struct Rounds {
  explicit Rounds(const PipelineShape& shape) : shape_(shape) {}
  int count() const {
    const int rounds = (shape_.micro_batches + shape_.stages - 1) / shape_.stages;
    return rounds * shape_.places();
  }
  ComputeOp forward(int k) const {
    return {PipelineOpKind::forward, micro_batch(k), virtual_stage(k)};
  }
  ComputeOp backward(int k) const {
    return {PipelineOpKind::backward, micro_batch(k), shape_.virtual_stages - 1 - virtual_stage(k)};
  }

 private:
  int virtual_stage(int k) const { return k % shape_.places() / shape_.stages; }
  int micro_batch(int k) const { return k / shape_.places() * shape_.stages + k % shape_.stages; }
  PipelineShape shape_;
};

}  // namespace tutti::pipeline::builders
