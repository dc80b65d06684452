#include <fmt/format.h>

#include <algorithm>
#include <array>

#include "pipeline/neighbours.hpp"
#include "pipeline/play.hpp"

namespace tutti::pipeline {
namespace {

// One rank's program, op by op. Because a virtual stage does everything in the order of micro-batches,
// how often it has done each kind of op is all there is to know of it.
class RankProof {
 public:
  explicit RankProof(const PipelineProgram& program)
      : program_(program), done_(static_cast<std::size_t>(program.shape.virtual_stages)) {}

  Status prove() {
    for (std::size_t at = 0; at < program_.ops.size(); ++at) {
      if (Status status = take(program_.ops[at]); !status.ok())
        return status.annotate(
            fmt::format("stage {}, op {} ({})", program_.rank, at, describe(program_.ops[at])));
    }
    return check_end();
  }
  int activations() const { return most_kept_; }

 private:
  using Counts = std::array<int, kPipelineOpKinds>;
  using Kind = PipelineOpKind;

  static Status wrong(std::string why) { return {Code::internal, std::move(why)}; }
  int done(int virtual_stage, Kind kind) const {
    return done_[static_cast<std::size_t>(virtual_stage)][static_cast<std::size_t>(kind)];
  }
  bool splits() const { return program_.kind == PipelineKind::zb_h1; }
  Kind first_backward() const { return splits() ? Kind::backward_input : Kind::backward; }
  Kind last_backward() const { return splits() ? Kind::backward_weight : Kind::backward; }

  // How often a virtual stage has to do such an op.
  int wanted(int virtual_stage, Kind kind) const {
    if (is_transfer(kind) && peer_of(kind, program_.shape, program_.rank, virtual_stage) == kNobody)
      return 0;
    const bool trains = program_.kind != PipelineKind::forward;
    bool exists =
        kind == Kind::forward || kind == Kind::send_activation || kind == Kind::recv_activation;
    if (trains)
      exists = exists || is_transfer(kind) || kind == first_backward() || kind == last_backward();
    return exists ? program_.shape.micro_batches : 0;
  }

  Status take(const PipelineOp& op) {
    if (op.virtual_stage < 0 || op.virtual_stage >= program_.shape.virtual_stages)
      return wrong("there is no such virtual stage");
    if (wanted(op.virtual_stage, op.kind) == 0) return wrong("there is nothing of that kind to do");
    const int expected = done(op.virtual_stage, op.kind);
    if (op.micro_batch != expected || op.micro_batch >= program_.shape.micro_batches)
      return wrong(fmt::format("not in the order of micro-batches: {} is next", expected));
    if (is_transfer(op.kind) &&
        op.peer != peer_of(op.kind, program_.shape, program_.rank, op.virtual_stage))
      return wrong("that is not who is on the other side");
    if (Status status = check_inputs(op); !status.ok()) return status;
    ++done_[static_cast<std::size_t>(op.virtual_stage)][static_cast<std::size_t>(op.kind)];
    return check_kept(op);
  }

  // Whether what `op` reads is there.
  Status check_inputs(const PipelineOp& op) const {
    const auto need = [&](Kind kind, const char* what) -> Status {
      return done(op.virtual_stage, kind) > op.micro_batch ? Status() : wrong(what);
    };
    switch (op.kind) {
      case Kind::forward: return check_received(op, Kind::recv_activation, -1);
      case Kind::backward:
      case Kind::backward_input:
        if (Status status = need(Kind::forward, "its forward is not done"); !status.ok())
          return status;
        return check_received(op, Kind::recv_gradient, 1);
      case Kind::backward_weight:
        return need(Kind::backward_input, "its backward_input is not done");
      case Kind::send_activation: return need(Kind::forward, "its forward is not done");
      case Kind::send_gradient: return need(first_backward(), "its backward is not done");
      case Kind::recv_activation:
      case Kind::recv_gradient: break;
    }
    return {};
  }

  // From a rank, or from the place `step` away on this one; the model's ends get nothing.
  Status check_received(const PipelineOp& op, Kind received, int step) const {
    const PipelineShape& shape = program_.shape;
    const int place = shape.place(program_.rank, op.virtual_stage) + step;
    if (place < 0 || place >= shape.places()) return {};
    const bool travels = wanted(op.virtual_stage, received) > 0;
    const Kind made_by = step < 0 ? Kind::forward : first_backward();
    const int there =
        travels ? done(op.virtual_stage, received) : done(shape.virtual_stage_of(place), made_by);
    return there > op.micro_batch ? Status() : wrong("its input is not there");
  }

  // Of all virtual stages together; zb-h1 also keeps as few whole ones as 1F1B.
  Status check_kept(const PipelineOp& op) {
    if (op.kind != Kind::forward) return {};
    const bool trains = program_.kind != PipelineKind::forward;
    int kept = trains ? 0 : 1, whole = 0;
    for (int i = 0; trains && i < program_.shape.virtual_stages; ++i) {
      kept += done(i, Kind::forward) - done(i, last_backward());
      whole += done(i, Kind::forward) - done(i, first_backward());
    }
    most_kept_ = std::max(most_kept_, kept);
    const int bound = activation_bound(program_.kind, program_.shape, program_.rank);
    if (kept > bound) return wrong(fmt::format("{} activations are kept, {} at most", kept, bound));
    const int whole_bound =
        activation_bound(PipelineKind::one_f_one_b, program_.shape, program_.rank);
    if (splits() && whole > whole_bound)
      return wrong(fmt::format("{} whole activations are kept, {} at most", whole, whole_bound));
    return {};
  }

  Status check_end() const {
    for (int i = 0; i < program_.shape.virtual_stages; ++i)
      for (int k = 0; k < kPipelineOpKinds; ++k)
        if (const auto kind = static_cast<Kind>(k); done(i, kind) < wanted(i, kind))
          return wrong(fmt::format(
              "stage {} ends without the {}", program_.rank,
              describe({kind, done(i, kind), i, peer_of(kind, program_.shape, program_.rank, i)})));
    return {};
  }

  const PipelineProgram& program_;
  std::vector<Counts> done_;  // by virtual stage
  int most_kept_ = 0;
};

Status check_set(std::span<const PipelineProgram> programs) {
  if (programs.empty()) return {Code::internal, "there are no programs"};
  const PipelineProgram& first = programs.front();
  if (Status status = check_pipeline(first.kind, first.shape); !status.ok())
    return {Code::internal, status.message()};
  bool alike = static_cast<int>(programs.size()) == first.shape.stages;
  for (std::size_t rank = 0; alike && rank < programs.size(); ++rank)
    alike = programs[rank].kind == first.kind && programs[rank].shape == first.shape &&
            programs[rank].rank == static_cast<int>(rank);
  return alike ? Status() : Status(Code::internal, "these are not the programs of one pipeline");
}

}  // namespace

Result<PipelineReport> v1::verify_pipeline(std::span<const PipelineProgram> programs) {
  if (Status status = check_set(programs); !status.ok()) return status;
  PipelineReport report;
  for (const PipelineProgram& program : programs) {
    RankProof proof(program);
    if (Status status = proof.prove(); !status.ok()) return status;
    report.activations.push_back(proof.activations());
    report.messages +=
        std::count_if(program.ops.begin(), program.ops.end(), [](const PipelineOp& op) {
          return op.kind == PipelineOpKind::send_activation ||
                 op.kind == PipelineOpKind::send_gradient;
        });
  }
  // Every transfer is there once on both sides; what is left is whether their order lets them meet.
  PipelineDurations durations;
  durations.places.resize(1);
  durations.overlap = false;
  Playback playback(programs, durations);
  if (Status status = playback.play(); !status.ok()) return status;
  return report;
}

}  // namespace tutti::pipeline
