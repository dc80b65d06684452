// Pipeline programs broken on purpose, one change at a time: the verifier must notice every one of them.
#include <algorithm>
#include <functional>

#include "shapes.hpp"

namespace tutti::pipeline {
namespace {

using Kind = PipelineOpKind;
// Changes op `at`; false when there is nothing to change there.
using PipelineMutation = std::function<bool(PipelineProgram& program, std::size_t at)>;

void expect_rejected(const PipelineMutation& mutation, int at_least) {
  int mutants = 0;
  for (const PipelineKind kind : kKinds)
    for (const PipelineShape& shape :
         {PipelineShape{1, 3, 1}, PipelineShape{2, 5, 1}, PipelineShape{4, 6, 1},
          PipelineShape{3, 2, 1}, PipelineShape{1, 2, 2}, PipelineShape{2, 4, 2},
          PipelineShape{3, 5, 3}}) {
      if (shape.virtual_stages > 1 && !takes_virtual_stages(kind)) continue;
      const auto programs = programs_of(kind, shape);
      for (std::size_t rank = 0; rank < programs.size(); ++rank)
        for (std::size_t at = 0; at < programs[rank].ops.size(); ++at) {
          auto mutant = programs;
          if (!mutation(mutant[rank], at)) continue;
          ++mutants;
          ASSERT_FALSE(verify_pipeline(mutant).ok())
              << describe(kind, shape) << ": stage " << rank << ", op " << at << " ("
              << describe(programs[rank].ops[at]) << ") changed";
        }
    }
  EXPECT_GE(mutants, at_least);
}

TEST(BrokenPipelines, that_lack_an_op_are_rejected) {
  expect_rejected(
      [](PipelineProgram& program, std::size_t at) {
        program.ops.erase(program.ops.begin() + static_cast<std::ptrdiff_t>(at));
        return true;
      },
      700);
}

TEST(BrokenPipelines, that_do_an_op_twice_are_rejected) {
  expect_rejected(
      [](PipelineProgram& program, std::size_t at) {
        program.ops.insert(program.ops.begin() + static_cast<std::ptrdiff_t>(at), program.ops[at]);
        return true;
      },
      700);
}

TEST(BrokenPipelines, that_exchange_two_micro_batches_are_rejected) {
  expect_rejected(
      [](PipelineProgram& program, std::size_t at) {
        const PipelineOp op = program.ops[at];
        const auto next =
            std::find_if(program.ops.begin() + static_cast<std::ptrdiff_t>(at) + 1,
                         program.ops.end(), [&](const PipelineOp& other) {
                           return other.kind == op.kind && other.virtual_stage == op.virtual_stage;
                         });
        if (next == program.ops.end()) return false;
        std::swap(program.ops[at].micro_batch, next->micro_batch);
        return true;
      },
      500);
}

// Neighbours of which the second needs the first: what it computed, or received.
TEST(BrokenPipelines, that_do_something_before_what_it_needs_are_rejected) {
  expect_rejected(
      [](PipelineProgram& program, std::size_t at) {
        if (at + 1 == program.ops.size()) return false;
        PipelineOp &first = program.ops[at], &second = program.ops[at + 1];
        const bool same_part =
            first.micro_batch == second.micro_batch && first.virtual_stage == second.virtual_stage;
        const bool same_batch = is_transfer(first.kind) && first.batch == second.batch;
        if (!same_part || same_batch) return false;
        std::swap(first, second);
        return true;
      },
      200);
}

TEST(BrokenPipelines, that_talk_to_the_wrong_rank_are_rejected) {
  expect_rejected(
      [](PipelineProgram& program, std::size_t at) {
        if (!is_transfer(program.ops[at].kind)) return false;
        program.ops[at].peer = program.rank;
        return true;
      },
      300);
}

TEST(BrokenPipelines, that_put_a_backward_off_keep_too_much_and_are_rejected) {
  auto programs = programs_of(PipelineKind::one_f_one_b, {2, 4, 1});
  const auto gpipe = programs_of(PipelineKind::gpipe, {2, 4, 1});
  for (std::size_t rank = 0; rank < 2; ++rank) programs[rank].ops = gpipe[rank].ops;
  const Status status = verify_pipeline(programs).status();
  EXPECT_NE(status.message().find("activations are kept, 2 at most"), std::string::npos)
      << status.to_string();
}

// The first stage wants its first gradient before it sends the activation that it comes from.
TEST(BrokenPipelines, whose_batches_wait_for_each_other_are_rejected_with_who_waits_for_what) {
  auto programs = programs_of(PipelineKind::gpipe, {2, 1, 1});
  auto& ops = programs[0].ops;  // F0 (s0 R0) B0
  ASSERT_EQ(ops.size(), 4U);
  std::swap(ops[1], ops[2]);
  ops[2].batch = ops[1].batch + 1;
  const Status status = verify_pipeline(programs).status();
  EXPECT_EQ(status.code(), Code::internal);
  EXPECT_NE(status.message().find("stage 0 waits in op 1 (recv_gradient of micro-batch 0 from "
                                  "stage 1), stage 1 waits in op 0 (recv_activation of "
                                  "micro-batch 0 from stage 0)"),
            std::string::npos)
      << status.to_string();
}

TEST(BrokenPipelines, of_different_kinds_or_sizes_are_no_pipeline) {
  auto programs = programs_of(PipelineKind::one_f_one_b, {2, 4, 1});
  programs[1] = programs_of(PipelineKind::gpipe, {2, 4, 1})[1];
  EXPECT_FALSE(verify_pipeline(programs).ok());
  programs.pop_back();
  EXPECT_FALSE(verify_pipeline(programs).ok());
  EXPECT_FALSE(verify_pipeline({}).ok());
}

}  // namespace
}  // namespace tutti::pipeline
