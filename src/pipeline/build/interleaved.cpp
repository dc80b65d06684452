// interleaved - 1F1B where each rank holds several parts of the model, as Megatron-LM has it: a round
// of p micro-batches goes through a rank's first part, then through its second … The pipeline fills
// with parts instead of stages, so the bubble is 1/v as long, for v times as many messages.
//
//   stage 0  0>1>0)1)2>··0(((3>1(((2)0<<<3)1<<<··2(((··3(((2<<<3<<<     v = 2; ) ( the second part
//   stage 1  ··0>1>0)0(((1)1(((2>0<<<3>1<<<2)2(((3)3(((2<<<3<<<····
//
// Neighbours are 2 forwards apart instead of 1, so that a message has a whole turn (a forward and a
// backward) to travel in.
#include <algorithm>

#include "pipeline/build/draft.hpp"

namespace tutti::pipeline::builders {

PipelineProgram interleaved(const PipelineShape& shape, int rank) {
  if (shape.virtual_stages == 1) {
    PipelineProgram program = one_f_one_b(shape, rank);
    program.kind = PipelineKind::interleaved;
    return program;
  }
  ProgramDraft draft(PipelineKind::interleaved, shape, rank);
  const Rounds rounds(shape);
  const int all = rounds.count(), p = shape.stages;
  const int ahead = std::min(2 * (p - rank - 1) + (shape.virtual_stages - 1) * p, all);
  for (int k = 0; k < ahead; ++k) draft.turn({rounds.forward(k)});
  for (int k = ahead; k < all; ++k) draft.turn({rounds.forward(k), rounds.backward(k - ahead)});
  for (int k = all - ahead; k < all; ++k) draft.turn({rounds.backward(k)});
  return draft.take();
}

}  // namespace tutti::pipeline::builders
