#include <fmt/format.h>

#include "tutti/pipeline/schedule.hpp"

namespace tutti::pipeline {

std::string_view v1::to_string(PipelineKind kind) noexcept {
  switch (kind) {
    case PipelineKind::gpipe: return "gpipe";
    case PipelineKind::one_f_one_b: return "1f1b";
    case PipelineKind::interleaved: return "interleaved";
    case PipelineKind::zb_h1: return "zb-h1";
    case PipelineKind::forward: return "forward";
  }
  return "?";
}

std::optional<PipelineKind> v1::parse_pipeline_kind(std::string_view word) noexcept {
  for (int i = 0; i < kPipelineKinds; ++i)
    if (const auto kind = static_cast<PipelineKind>(i); to_string(kind) == word) return kind;
  return std::nullopt;
}

std::string_view v1::to_string(PipelineOpKind kind) noexcept {
  switch (kind) {
    case PipelineOpKind::forward: return "forward";
    case PipelineOpKind::backward: return "backward";
    case PipelineOpKind::backward_input: return "backward_input";
    case PipelineOpKind::backward_weight: return "backward_weight";
    case PipelineOpKind::send_activation: return "send_activation";
    case PipelineOpKind::recv_activation: return "recv_activation";
    case PipelineOpKind::send_gradient: return "send_gradient";
    case PipelineOpKind::recv_gradient: return "recv_gradient";
  }
  return "?";
}

bool v1::is_transfer(PipelineOpKind kind) noexcept {
  return kind >= PipelineOpKind::send_activation;
}

std::string v1::describe(const PipelineOp& op) {
  std::string text = fmt::format("{} of micro-batch {}", to_string(op.kind), op.micro_batch);
  if (op.virtual_stage > 0) text += fmt::format(", virtual stage {}", op.virtual_stage);
  if (!is_transfer(op.kind)) return text;
  const bool sends =
      op.kind == PipelineOpKind::send_activation || op.kind == PipelineOpKind::send_gradient;
  return text + fmt::format(" {} stage {}", sends ? "to" : "from", op.peer);
}

}  // namespace tutti::pipeline
