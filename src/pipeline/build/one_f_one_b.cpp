// 1f1b - a forward for each stage ahead, then a backward for each forward: a stage keeps as many
// micro-batches as there are stages from it on, however many the step has.
//
//   stage 0  0>1>2>3>············0<<<4>1<<<5>2<<<··3<<<··4<<<··5<<<
//   stage 1  ··0>1>2>········0<<<3>1<<<4>2<<<5>3<<<··4<<<··5<<<····
//   stage 2  ····0>1>····0<<<2>1<<<3>2<<<4>3<<<5>4<<<··5<<<········
//   stage 3  ······0>0<<<1>1<<<2>2<<<3>3<<<4>4<<<5>5<<<············
//
// zb-h1 (Qi, Wan, Huang, Lin 2023) is the same with backward in two parts: b computes what the stage
// before waits for, w the weights' gradients. Stage s puts its w off by s micro-batches, which fills the
// gaps at the end, and keeps no more than the first stage of 1f1b does: p − s whole micro-batches and s
// that wait for their w.
//
//   stage 0  0>1>2>3>······0b0w4>1b1w5>2b2w3b3w4b4w5b5w
//   stage 1  ··0>1>2>····0b3>1b0w4>2b1w5>3b2w4b3w5b4w5w
//   stage 2  ····0>1>··0b2>1b3>2b0w4>3b1w5>4b2w5b3w4w5w
//   stage 3  ······0>0b1>1b2>2b3>3b0w4>4b1w5>5b2w3w4w5w
#include <algorithm>

#include "pipeline/build/draft.hpp"

namespace tutti::pipeline::builders {
namespace {

template <class Backward>
void alternate(ProgramDraft& draft, const PipelineShape& shape, int rank, Backward backward) {
  const int m = shape.micro_batches;
  const int ahead = std::min(shape.stages - 1 - rank, m);
  for (int i = 0; i < m; ++i) {
    draft.turn({{PipelineOpKind::forward, i}});
    if (i >= ahead) backward(i - ahead);
  }
  for (int i = m - ahead; i < m; ++i) backward(i);
}

}  // namespace

PipelineProgram one_f_one_b(const PipelineShape& shape, int rank) {
  ProgramDraft draft(PipelineKind::one_f_one_b, shape, rank);
  alternate(draft, shape, rank, [&](int i) { draft.turn({{PipelineOpKind::backward, i}}); });
  return draft.take();
}

PipelineProgram zb_h1(const PipelineShape& shape, int rank) {
  ProgramDraft draft(PipelineKind::zb_h1, shape, rank);
  const auto weight = [&](int i) { draft.turn({{PipelineOpKind::backward_weight, i}}); };
  alternate(draft, shape, rank, [&](int i) {
    draft.turn({{PipelineOpKind::backward_input, i}});
    if (i >= rank) weight(i - rank);
  });
  for (int i = std::max(0, shape.micro_batches - rank); i < shape.micro_batches; ++i) weight(i);
  return draft.take();
}

}  // namespace tutti::pipeline::builders
