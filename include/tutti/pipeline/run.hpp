// tutti/pipeline/run.hpp - runs a pipeline schedule: a model cut into stages, one rank each.
//
// The caller computes (StageCompute), the runner decides when, and moves activations and gradients
// between neighbours while other micro-batches are computed.
//
// Ordering       `create` and `run` are called by all ranks of the group. Within a run each rank makes
//                the calls of its program (tutti/pipeline/schedule.hpp), in the calling thread; a virtual
//                stage's calls of a kind come in the order of micro-batches, so its weight gradients are
//                summed in the same order, and to the same bits, as without a pipeline.
// Buffers        the runner's own, the same ones in every step, in CPU memory. `input` and `output_gradient`
//                stay as they came until the last call for that micro-batch and virtual stage has
//                returned (a forward's graph may refer to them); `output` and `input_gradient` are to be
//                filled before the call returns, and are gone then.
// Transfers      go by messages of a group of its own that is urgent, so that neither buckets nor other
//                messages of the caller hold them up. Receives are posted before they are needed.
// Thread-safety  none; ranks may be threads of one process, with a runner each.
// Failure        a stage that fails, dies or is late ends the run on every rank that still waits for
//                something, with a Status that names stage and micro-batch, and every later run. Who was
//                through already learns it then. No wait is longer than the timeout.
//
//   tutti::pipeline::PipelineOptions options{.kind = PipelineKind::one_f_one_b, .micro_batches = 8};
//   options.boundaries = {{{batch * hidden, tutti::Dtype::f32}}};
//   auto pipeline = tutti::pipeline::PipelineRunner::create(*group, options);
//   for (int step = 0; step < steps; ++step)
//     if (auto times = (*pipeline)->run(my_stages); !times.ok()) return times.status();
#pragma once

#include <chrono>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "tutti/group.hpp"
#include "tutti/pipeline/simulate.hpp"

namespace tutti::pipeline {
inline namespace [[gnu::visibility("default")]] v1 {

// One of the tensors that cross a boundary; its gradient is like it.
struct BoundaryTensor {
  std::size_t count = 0;
  Dtype dtype = Dtype::f32;
};

// What a call is about. Spans have a Buffer for each tensor of the boundary; at the model's ends, and
// where a call has nothing to do with it, they are empty.
struct StagePass {
  int micro_batch = 0;
  int virtual_stage = 0;  // of this rank
  bool is_first_place = false;
  bool is_last_place = false;  // forward computes the loss here, and backward begins with it
  // The virtual stage's gradients are whole when this backward (backward_weight, where there is one)
  // has returned: they may be reduced while others are computed.
  bool is_last_micro_batch = false;
  std::span<const Buffer> input;
  std::span<const Buffer> output;           // forward
  std::span<const Buffer> output_gradient;  // backward
  std::span<const Buffer> input_gradient;   // backward, backward_input
};

// The stages of one rank. Lent to a run. Nothing may be thrown out of it.
class StageCompute {
 public:
  virtual ~StageCompute() = default;
  // Reads `input`, fills `output`, and keeps what backward needs.
  virtual Status forward(const StagePass& pass) = 0;
  // Reads `output_gradient`, fills `input_gradient`, and adds to the weights' gradients.
  virtual Status backward(const StagePass& pass) = 0;
  // The same in two parts, for zb_h1: everything but the weights' gradients, and these, some micro-batches
  // later. Unless they are there, such a run ends with Code::unsupported.
  virtual Status backward_input(const StagePass& pass);
  virtual Status backward_weight(const StagePass& pass);
};

struct PipelineOptions {
  PipelineKind kind = PipelineKind::one_f_one_b;
  int micro_batches = 1;   // of a run
  int virtual_stages = 1;  // of a rank
  // One: all are alike; else one for each boundary, in the model's order.
  std::vector<std::vector<BoundaryTensor>> boundaries{};
  // How long a transfer may take, counted from when it could begin; zero: the group's.
  std::chrono::nanoseconds timeout{0};
  std::string name = "pipeline";  // of its group, in messages and traces
};

// Seconds of a rank's run. They add up to step_s, but for what the runner itself takes.
struct PipelineTimes {
  double step_s = 0;
  double busy_s = 0;     // in the caller's calls
  double waiting_s = 0;  // for messages that were on their way: exposed
  double bubble_s = 0;   // for what a neighbour had not computed yet
};

class PipelineRunner {
 public:
  // Collective. mismatch when ranks differ in what they ask for; it names two of them.
  static Result<std::unique_ptr<PipelineRunner>> create(Group& group, PipelineOptions options);
  virtual ~PipelineRunner() = default;

  // Collective: all micro-batches of one step.
  virtual Result<PipelineTimes> run(StageCompute& stages) = 0;

  virtual const PipelineProgram& program() const = 0;
  // What the last run computed when, on this rank.
  virtual std::span<const PipelineSlice> slices() const = 0;
  // Memory of all its buffers.
  virtual std::size_t buffer_bytes() const = 0;
};

}  // namespace v1
}  // namespace tutti::pipeline
