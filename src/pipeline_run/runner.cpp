#include <fmt/format.h>

#include "core/check.hpp"
#include "core/clock.hpp"
#include "core/exhausted.hpp"
#include "pipeline/neighbours.hpp"
#include "pipeline_run/agreement.hpp"
#include "pipeline_run/run_meter.hpp"
#include "pipeline_run/stage_boxes.hpp"
#include "train/clock_offsets.hpp"

namespace tutti::pipeline {
namespace {

using Kind = PipelineOpKind;

class Runner final : public PipelineRunner {
 public:
  Runner(std::shared_ptr<Group> group, PipelineProgram program, RankBoxes boxes,
         std::vector<std::int64_t> clock_offsets, std::string name)
      : group_(std::move(group)),
        program_(std::move(program)),
        boxes_(std::move(boxes)),
        clock_offsets_(std::move(clock_offsets)),
        name_(std::move(name)),
        meter_(group_->trace(), program_.shape) {}

  Result<PipelineTimes> run(StageCompute& stages) override;
  const PipelineProgram& program() const override { return program_; }
  std::span<const PipelineSlice> slices() const override { return meter_.slices(); }
  std::size_t buffer_bytes() const override { return boxes_.bytes; }

 private:
  const PipelineShape& shape() const { return program_.shape; }
  StageBoxes& boxes(int virtual_stage) {
    return boxes_.stages[static_cast<std::size_t>(virtual_stage)];
  }
  void post_receives();
  Status perform(const PipelineOp& op, StageCompute& stages);
  Status await_input(const PipelineOp& op);
  Status await_slot(const PipelineOp& op);
  Status await_send(SendBox& box, const PipelineOp& op, int micro_batch);
  Status await_last_sends();
  StagePass pass_of(const PipelineOp& op);
  Status call(const PipelineOp& op, StageCompute& stages);
  void free_inputs(const PipelineOp& op);
  void send_output(const PipelineOp& op);
  SendBox* send_box_of(const PipelineOp& op);
  ReceiveBox* receive_box_of(const PipelineOp& op);
  Status fail(const Status& cause, const PipelineOp& op);

  std::shared_ptr<Group> group_;
  PipelineProgram program_;
  RankBoxes boxes_;
  std::vector<std::int64_t> clock_offsets_;  // to rank 0's
  std::string name_;
  RunMeter meter_;
  Status failure_;  // of an earlier run
};

Result<PipelineTimes> Runner::run(StageCompute& stages) {
  if (!failure_.ok()) return failure_;
  meter_.begin(trace::now_ns());
  for (StageBoxes& each : boxes_.stages)
    for (std::optional<ReceiveBox>* box : {&each.activations_in, &each.gradients_in})
      if (*box) (*box)->begin_step();
  for (const PipelineOp& op : program_.ops) {
    if (is_transfer(op.kind)) continue;  // posted as soon as it can be, which is never later
    post_receives();
    if (Status status = perform(op, stages); !status.ok()) return failure_ = std::move(status);
  }
  if (Status status = await_last_sends(); !status.ok()) return failure_ = std::move(status);
  return meter_.finish(trace::now_ns());
}

void Runner::post_receives() {
  for (StageBoxes& each : boxes_.stages)
    for (std::optional<ReceiveBox>* box : {&each.activations_in, &each.gradients_in})
      if (*box) (*box)->post(shape().micro_batches);
}

Status Runner::perform(const PipelineOp& op, StageCompute& stages) {
  if (Status status = await_input(op); !status.ok()) return status;
  if (Status status = await_slot(op); !status.ok()) return status;
  const std::int64_t begin = trace::now_ns();
  const Status status = call(op, stages);
  meter_.computed(op, begin, trace::now_ns());
  if (!status.ok()) return fail(status, op);
  send_output(op);
  free_inputs(op);
  return {};
}

// ---- what a computing op waits for

// Null: it receives nothing.
ReceiveBox* Runner::receive_box_of(const PipelineOp& op) {
  StageBoxes& own = boxes(op.virtual_stage);
  const auto received = received_for(op.kind);
  if (!received) return nullptr;
  auto& box = received == Kind::recv_activation ? own.activations_in : own.gradients_in;
  return box ? &*box : nullptr;
}

// Null: it sends nothing.
SendBox* Runner::send_box_of(const PipelineOp& op) {
  StageBoxes& own = boxes(op.virtual_stage);
  const auto sent = sent_after(op.kind);
  if (!sent) return nullptr;
  auto& box = sent == Kind::send_activation ? own.activations_out : own.gradients_out;
  return box ? &*box : nullptr;
}

Status Runner::await_input(const PipelineOp& op) {
  ReceiveBox* box = receive_box_of(op);
  if (box == nullptr) return {};
  Work& work = box->work(op.micro_batch);
  const bool was_there = work.done();
  const std::int64_t begin = trace::now_ns();
  const Status status = work.wait();  // bounded: a transfer has a deadline
  const PipelineOp receive{*received_for(op.kind), op.micro_batch, op.virtual_stage, box->peer()};
  if (!status.ok()) return fail(status, receive);
  if (was_there) return {};
  const auto offset = [&](int rank) { return clock_offsets_[static_cast<std::size_t>(rank)]; };
  const std::int64_t sent =
      box->stamp(op.micro_batch) + offset(box->peer()) - offset(program_.rank);
  meter_.waited(receive, begin, sent, trace::now_ns());
  return {};
}

// The slot that an op is about to fill must have been sent.
Status Runner::await_slot(const PipelineOp& op) {
  SendBox* box = send_box_of(op);
  if (box == nullptr || op.micro_batch < box->slots()) return {};
  return await_send(*box, op, op.micro_batch - box->slots());
}

Status Runner::await_send(SendBox& box, const PipelineOp& op, int micro_batch) {
  Work& work = box.work(micro_batch);
  const bool was_sent = work.done();
  const std::int64_t begin = trace::now_ns();
  if (Status status = work.wait(); !status.ok())  // bounded: a transfer has a deadline
    return fail(status, {*sent_after(op.kind), micro_batch, op.virtual_stage, box.peer()});
  if (!was_sent) meter_.waited_to_send(begin, trace::now_ns());
  return {};
}

// At the end, those whose slots nobody needed any more.
Status Runner::await_last_sends() {
  for (const PipelineOp& op : program_.ops) {
    SendBox* box = send_box_of(op);
    if (box == nullptr || op.micro_batch + box->slots() < shape().micro_batches) continue;
    if (Status status = await_send(*box, op, op.micro_batch); !status.ok()) return status;
  }
  return {};
}

// ---- the calls

StagePass Runner::pass_of(const PipelineOp& op) {
  const int stage = op.virtual_stage, i = op.micro_batch;
  StageBoxes& own = boxes(stage);
  StagePass pass;
  pass.micro_batch = i;
  pass.virtual_stage = stage;
  pass.is_first_place = shape().place(program_.rank, stage) == 0;
  pass.is_last_place = shape().place(program_.rank, stage) + 1 == shape().places();
  pass.is_last_micro_batch = i + 1 == shape().micro_batches;
  if (own.activations_in) pass.input = own.activations_in->buffers(i);
  if (op.kind == Kind::forward) {
    if (own.activations_out) pass.output = own.activations_out->buffers(i);
    if (!own.activations_out && !pass.is_last_place)
      pass.output = boxes(stage + 1).activations_in->buffers(i);
    return pass;
  }
  if (own.gradients_in) pass.output_gradient = own.gradients_in->buffers(i);
  if (op.kind == Kind::backward_weight) return pass;
  if (own.gradients_out) pass.input_gradient = own.gradients_out->buffers(i);
  if (!own.gradients_out && !pass.is_first_place)
    pass.input_gradient = boxes(stage - 1).gradients_in->buffers(i);
  return pass;
}

Status Runner::call(const PipelineOp& op, StageCompute& stages) {
  switch (op.kind) {
    case Kind::forward: return stages.forward(pass_of(op));
    case Kind::backward: return stages.backward(pass_of(op));
    case Kind::backward_input: return stages.backward_input(pass_of(op));
    case Kind::backward_weight: return stages.backward_weight(pass_of(op));
    case Kind::send_activation:
    case Kind::recv_activation:
    case Kind::send_gradient:
    case Kind::recv_gradient: break;
  }
  TUTTI_CHECK(!is_transfer(op.kind));
  return {};
}

void Runner::send_output(const PipelineOp& op) {
  if (SendBox* box = send_box_of(op)) box->send(op.micro_batch, trace::now_ns());
}

// What came in is not needed any more once the micro-batch's last op is done.
void Runner::free_inputs(const PipelineOp& op) {
  const bool evaluates = program_.kind == PipelineKind::forward;
  const bool is_last = evaluates || op.kind == Kind::backward || op.kind == Kind::backward_weight;
  if (!is_last) return;
  StageBoxes& own = boxes(op.virtual_stage);
  if (own.activations_in) own.activations_in->free(op.micro_batch);
  if (own.gradients_in) own.gradients_in->free(op.micro_batch);
}

// ---- failure

// Ends the run on all ranks: those that wait for this one learn why. Nothing is under way afterwards.
Status Runner::fail(const Status& cause, const PipelineOp& op) {
  const std::string lost = cause.code() == Code::peer_lost && cause.peer() >= 0
                               ? fmt::format("lost stage {}, ", cause.peer())
                               : "";
  const Status status =
      cause.annotate(fmt::format("pipeline '{}', stage {} of {}: {}{}", name_, program_.rank,
                                 shape().stages, lost, describe(op)));
  if (group_->health().ok()) group_->abort(status.message());
  for (StageBoxes& each : boxes_.stages) {
    for (std::optional<ReceiveBox>* box : {&each.activations_in, &each.gradients_in})
      if (*box) (*box)->drain();
    for (std::optional<SendBox>* box : {&each.activations_out, &each.gradients_out})
      if (*box) (*box)->drain();
  }
  return status;
}

Status check_boundaries(const PipelineOptions& options, const PipelineShape& shape) {
  const std::size_t given = options.boundaries.size();
  const auto all = static_cast<std::size_t>(shape.places() - 1);
  if (all > 0 && given != 1 && given != all)
    return {Code::invalid_argument,
            fmt::format("pipeline '{}': {} boundaries are described where there are {}; one stands "
                        "for all",
                        options.name, given, all)};
  for (const auto& boundary : options.boundaries)
    if (boundary.empty())
      return {Code::invalid_argument,
              fmt::format("pipeline '{}': a boundary without tensors", options.name)};
  return {};
}

Result<std::unique_ptr<PipelineRunner>> create_runner(Group& group, PipelineOptions options) {
  const PipelineShape shape{group.size(), options.micro_batches, options.virtual_stages};
  auto own = group.duplicate({options.name, std::nullopt, Urgency::urgent});
  if (!own.ok()) return own.status();
  if (Status status = agree(**own, options); !status.ok()) return status;
  auto program = build_pipeline(options.kind, shape, group.rank());
  if (!program.ok()) return program.status();
  if (Status status = check_boundaries(options, shape); !status.ok()) return status;
  auto boxes = make_boxes(**own, *program, options.boundaries, options.timeout);
  if (!boxes.ok()) return boxes.status();
  auto offsets = train::measure_offsets(**own, clock_identity(), steady_clock());
  if (!offsets.ok()) return offsets.status();
  return std::unique_ptr<PipelineRunner>(
      std::make_unique<Runner>(*std::move(own), *std::move(program), *std::move(boxes),
                               *std::move(offsets), std::move(options.name)));
}

Status not_split(const char* which) {
  return {Code::unsupported,
          fmt::format("the stages have no {}, which zb-h1 needs: 1f1b does without", which)};
}

}  // namespace

Status v1::StageCompute::backward_input(const StagePass&) { return not_split("backward_input"); }
Status v1::StageCompute::backward_weight(const StagePass&) { return not_split("backward_weight"); }

Result<std::unique_ptr<PipelineRunner>> v1::PipelineRunner::create(Group& group,
                                                                   PipelineOptions options) {
  return or_exhausted([&] { return create_runner(group, std::move(options)); });
}

}  // namespace tutti::pipeline
