#include <fmt/format.h>

#include <algorithm>

#include "pipeline/build/draft.hpp"

namespace tutti::pipeline {

Status v1::check_pipeline(PipelineKind kind, const PipelineShape& shape) {
  if (shape.stages < 1 || shape.micro_batches < 1 || shape.virtual_stages < 1)
    return {Code::invalid_argument,
            fmt::format("a pipeline has at least one stage, micro-batch and virtual stage, not {}, "
                        "{} and {}",
                        shape.stages, shape.micro_batches, shape.virtual_stages)};
  const bool takes_several = kind == PipelineKind::interleaved || kind == PipelineKind::forward;
  if (shape.virtual_stages > 1 && !takes_several)
    return {Code::invalid_argument,
            fmt::format("{} has one virtual stage on each rank, not {}; interleaved has several",
                        to_string(kind), shape.virtual_stages)};
  return {};
}

Result<PipelineProgram> v1::build_pipeline(PipelineKind kind, const PipelineShape& shape,
                                           int rank) {
  if (Status status = check_pipeline(kind, shape); !status.ok()) return status;
  if (rank < 0 || rank >= shape.stages)
    return Status(Code::invalid_argument,
                  fmt::format("{} is not a stage of a pipeline of {}", rank, shape.stages));
  switch (kind) {
    case PipelineKind::gpipe: return builders::gpipe(shape, rank);
    case PipelineKind::one_f_one_b: return builders::one_f_one_b(shape, rank);
    case PipelineKind::interleaved: return builders::interleaved(shape, rank);
    case PipelineKind::zb_h1: return builders::zb_h1(shape, rank);
    case PipelineKind::forward: return builders::forward(shape, rank);
  }
  return Status(Code::invalid_argument, "there is no such pipeline schedule");
}

Result<std::vector<PipelineProgram>> v1::build_pipeline(PipelineKind kind,
                                                        const PipelineShape& shape) {
  std::vector<PipelineProgram> programs;
  for (int rank = 0; rank < std::max(1, shape.stages); ++rank) {
    auto program = build_pipeline(kind, shape, rank);
    if (!program.ok()) return program.status();
    programs.push_back(*std::move(program));
  }
  return programs;
}

int v1::activation_bound(PipelineKind kind, const PipelineShape& shape, int rank) {
  const int m = shape.micro_batches, p = shape.stages, v = shape.virtual_stages;
  switch (kind) {
    case PipelineKind::gpipe: return m;
    case PipelineKind::one_f_one_b: return std::min(m, p - rank);
    case PipelineKind::interleaved: {
      if (v == 1) return std::min(m, p - rank);
      const int warm_up = 2 * (p - rank - 1) + (v - 1) * p;
      return m > warm_up ? warm_up + 1 : std::min(v * m, warm_up + 1);
    }
    case PipelineKind::zb_h1: return std::min(m, p);
    case PipelineKind::forward: return 1;
  }
  return 0;
}

}  // namespace tutti::pipeline
