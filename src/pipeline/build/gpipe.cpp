// gpipe - all micro-batches forward, then all of them backward.
//
//   stage 0  0>1>2>3>··················0<<<1<<<2<<<3<<<
//   stage 1  ··0>1>2>3>············0<<<1<<<2<<<3<<<····
//   stage 2  ····0>1>2>3>······0<<<1<<<2<<<3<<<········
//   stage 3  ······0>1>2>3>0<<<1<<<2<<<3<<<············
//
// Backwards go in the order of forwards, not from the last to the first, so that gradients are summed
// in the order of micro-batches. Evaluation is the first half of it, in rounds where a rank has several
// virtual stages.
#include "pipeline/build/draft.hpp"

namespace tutti::pipeline::builders {

PipelineProgram gpipe(const PipelineShape& shape, int rank) {
  ProgramDraft draft(PipelineKind::gpipe, shape, rank);
  for (const PipelineOpKind kind : {PipelineOpKind::forward, PipelineOpKind::backward})
    for (int i = 0; i < shape.micro_batches; ++i) draft.turn({{kind, i}});
  return draft.take();
}

PipelineProgram forward(const PipelineShape& shape, int rank) {
  ProgramDraft draft(PipelineKind::forward, shape, rank);
  const Rounds rounds(shape);
  for (int k = 0; k < rounds.count(); ++k) draft.turn({rounds.forward(k)});
  return draft.take();
}

}  // namespace tutti::pipeline::builders
