// unit/pipeline/shapes.hpp - what the pipeline's unit tests build and walk through.
#pragma once

#include <gtest/gtest.h>

#include <functional>
#include <string>
#include <vector>

#include "tutti/pipeline/simulate.hpp"

namespace tutti::pipeline {

inline constexpr PipelineKind kKinds[] = {PipelineKind::gpipe, PipelineKind::one_f_one_b,
                                          PipelineKind::interleaved, PipelineKind::zb_h1,
                                          PipelineKind::forward};
inline constexpr PipelineKind kTraining[] = {PipelineKind::gpipe, PipelineKind::one_f_one_b,
                                             PipelineKind::interleaved, PipelineKind::zb_h1};

inline bool takes_virtual_stages(PipelineKind kind) {
  return kind == PipelineKind::interleaved || kind == PipelineKind::forward;
}

inline std::string describe(PipelineKind kind, const PipelineShape& shape) {
  return std::string(to_string(kind)) + ", " + std::to_string(shape.stages) + " stages, " +
         std::to_string(shape.micro_batches) +
         " micro-batches, v = " + std::to_string(shape.virtual_stages);
}

inline std::vector<PipelineProgram> programs_of(PipelineKind kind, const PipelineShape& shape) {
  auto programs = build_pipeline(kind, shape);
  EXPECT_TRUE(programs.ok()) << describe(kind, shape) << ": " << programs.status().to_string();
  return programs.ok() ? *std::move(programs) : std::vector<PipelineProgram>();
}

// Every kind at every size that it takes, up to these.
inline void each_shape(int stages, int micro_batches, int virtual_stages,
                       const std::function<void(PipelineKind, const PipelineShape&)>& visit) {
  for (const PipelineKind kind : kKinds)
    for (int p = 1; p <= stages; ++p)
      for (int m = 1; m <= micro_batches; ++m)
        for (int v = 1; v <= (takes_virtual_stages(kind) ? virtual_stages : 1); ++v)
          visit(kind, {p, m, v});
}

}  // namespace tutti::pipeline
