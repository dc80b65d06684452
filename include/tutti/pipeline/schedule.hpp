// tutti/pipeline/schedule.hpp - who computes what when, where a model is cut into stages: pipeline
// schedules as data, one program per rank, proved before they run.
//
//   stage 0  0>1>····0<<<2>1<<<3>2<<<4>3<<<5>4<<<··5<<<     > forward, < backward, · bubble
//   stage 1  ··0>0<<<1>1<<<2>2<<<3>3<<<4>4<<<5>5<<<····     the number: of the micro-batch
//
// Stage s is rank s of the pipeline's group. With v virtual stages a rank holds v parts of the model;
// virtual stage i of rank s is the model's *place* i·stages + s, and what leaves a place goes to the
// next one. Between two places lies a *boundary*: activations cross it forwards, gradients backwards.
//
// Ops            computing ops run in the order in which they stand. Transfers that stand beside each
//                other and have one `batch` number go together, in any order. The program is read
//                strictly where it is proved: nobody goes on before all of its batch has met. Who runs
//                it may send as soon as there is something to send and receive ahead: that takes
//                waits away and adds none.
// Order          whatever a virtual stage does, it does in the order of micro-batches. So its weight
//                gradients are summed as one rank that holds the whole model sums them: to the bit.
// Thread-safety  values and pure functions.
//
//   auto program = build_pipeline(PipelineKind::one_f_one_b, {.stages = 4, .micro_batches = 8}, rank);
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "tutti/status.hpp"

namespace tutti::pipeline {
inline namespace [[gnu::visibility("default")]] v1 {

//   gpipe        all forwards, then all backwards
//   one_f_one_b  "1f1b": as many forwards as there are stages ahead, then a backward for each forward
//   interleaved  1F1B on v virtual stages a rank, in rounds of `stages` micro-batches, as Megatron
//                has it: 1/v of the bubble, v times the messages
//   zb_h1        "zb-h1": 1F1B with backward in two parts; weights wait until there is nothing
//                better to do, which leaves a third of the bubble
//   forward      nothing but forwards, for evaluation
enum class PipelineKind : std::uint8_t { gpipe, one_f_one_b, interleaved, zb_h1, forward };
inline constexpr int kPipelineKinds = 5;
std::string_view to_string(PipelineKind kind) noexcept;
std::optional<PipelineKind> parse_pipeline_kind(std::string_view word) noexcept;

struct PipelineShape {
  int stages = 1;          // ranks
  int micro_batches = 1;   // of a step
  int virtual_stages = 1;  // on each rank; more than one: interleaved and forward only

  int places() const noexcept { return stages * virtual_stages; }
  int place(int rank, int virtual_stage) const noexcept { return virtual_stage * stages + rank; }
  int rank_of(int place) const noexcept { return place % stages; }
  int virtual_stage_of(int place) const noexcept { return place / stages; }

  friend bool operator==(const PipelineShape&, const PipelineShape&) = default;
};
// invalid_argument says what does not fit.
Status check_pipeline(PipelineKind kind, const PipelineShape& shape);

enum class PipelineOpKind : std::uint8_t {
  forward,
  backward,         // whole
  backward_input,   // the gradient of what came in, which the stage before waits for
  backward_weight,  // the weights' gradients, for which nobody waits
  send_activation,  // to the next place
  recv_activation,  // from the place before
  send_gradient,    // to the place before
  recv_gradient,    // from the next place
};
inline constexpr int kPipelineOpKinds = 8;
std::string_view to_string(PipelineOpKind kind) noexcept;
bool is_transfer(PipelineOpKind kind) noexcept;

struct PipelineOp {
  PipelineOpKind kind = PipelineOpKind::forward;
  int micro_batch = 0;
  int virtual_stage = 0;  // of this rank
  int peer = -1;          // transfers
  int batch = -1;         // transfers

  friend bool operator==(const PipelineOp&, const PipelineOp&) = default;
};
// "recv_activation of micro-batch 3 from stage 1".
std::string describe(const PipelineOp& op);

struct PipelineProgram {
  PipelineKind kind = PipelineKind::one_f_one_b;
  PipelineShape shape;
  int rank = 0;
  std::vector<PipelineOp> ops;

  friend bool operator==(const PipelineProgram&, const PipelineProgram&) = default;
};

// One rank's program, without building anybody else's.
Result<PipelineProgram> build_pipeline(PipelineKind kind, const PipelineShape& shape, int rank);
// All ranks' programs.
Result<std::vector<PipelineProgram>> build_pipeline(PipelineKind kind, const PipelineShape& shape);

// How many micro-batches' activations a rank keeps at most, counted by virtual stage (each is 1/v of
// a stage's), from the end of a forward until its weights' gradients are there. p stages, stage s:
//   gpipe        m
//   one_f_one_b  min(m, p − s)
//   interleaved  min(v·m, 2·(p − s − 1) + (v − 1)·p + 1); v = 1: as one_f_one_b
//   zb_h1        min(m, p), what the first stage of 1F1B keeps. Of these at most min(m, p − s) are
//                whole; of the others backward_input is done.
//   forward      1: it is dropped when it was sent
int activation_bound(PipelineKind kind, const PipelineShape& shape, int rank);

struct PipelineReport {
  std::vector<int> activations;  // kept at most, by rank
  std::int64_t messages = 0;     // of all ranks, one way
};
// Takes the programs of all ranks and proves that every input is there before it is used, that every
// send meets its receive, that nobody waits for ever though each waits for the whole of its batch,
// that a virtual stage keeps to the order of micro-batches and that activations stay within their
// bound. Code::internal with a sentence that names rank and op when that is not so.
Result<PipelineReport> verify_pipeline(std::span<const PipelineProgram> programs);

}  // namespace v1
}  // namespace tutti::pipeline
