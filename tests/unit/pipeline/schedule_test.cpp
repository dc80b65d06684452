// What the builders write down is right for every size, and says what the pages say.
#include <algorithm>

#include "pipeline/held_inputs.hpp"
#include "shapes.hpp"

namespace tutti::pipeline {
namespace {

TEST(PipelineSchedules, are_proved_for_16_stages_64_micro_batches_and_4_virtual_stages) {
  int proved = 0;
  each_shape(16, 64, 4, [&](PipelineKind kind, const PipelineShape& shape) {
    const auto report = verify_pipeline(programs_of(kind, shape));
    ASSERT_TRUE(report.ok()) << describe(kind, shape) << ": " << report.status().to_string();
    ++proved;
  });
  EXPECT_EQ(proved, 16 * 64 * (3 + 2 * 4));
}

TEST(PipelineSchedules, keep_what_their_bound_says_and_no_less_when_there_is_enough_to_do) {
  for (const PipelineKind kind : kKinds)
    for (int p = 1; p <= 16; ++p)
      for (int v = 1; v <= (takes_virtual_stages(kind) ? 4 : 1); ++v) {
        const PipelineShape shape{p, 4 * p, v};
        const auto report = verify_pipeline(programs_of(kind, shape));
        ASSERT_TRUE(report.ok());
        for (int rank = 0; rank < p; ++rank)
          EXPECT_EQ(report->activations[static_cast<std::size_t>(rank)],
                    activation_bound(kind, shape, rank))
              << describe(kind, shape) << ", stage " << rank;
      }
}

TEST(PipelineSchedules, send_each_boundary_and_micro_batch_one_message_each_way) {
  for (const PipelineKind kind : kKinds)
    for (const int v : {1, 3}) {
      if (v > 1 && !takes_virtual_stages(kind)) continue;
      const PipelineShape shape{4, 8, v};
      const auto report = verify_pipeline(programs_of(kind, shape));
      ASSERT_TRUE(report.ok());
      EXPECT_EQ(report->messages,
                (shape.places() - 1) * 8 * (kind == PipelineKind::forward ? 1 : 2));
    }
}

TEST(PipelineSchedules, of_one_rank_are_the_plain_loop) {
  const auto program = build_pipeline(PipelineKind::one_f_one_b, {1, 3, 1}, 0);
  ASSERT_TRUE(program.ok());
  std::vector<PipelineOp> loop;
  for (int i = 0; i < 3; ++i) {
    loop.push_back({PipelineOpKind::forward, i});
    loop.push_back({PipelineOpKind::backward, i});
  }
  EXPECT_EQ(program->ops, loop);
}

std::string text_of(const PipelineProgram& program) {
  std::string text;
  int batch = -1;
  for (const PipelineOp& op : program.ops) {
    const char* words[] = {"F", "B", "b", "w", "s", "r", "S", "R"};
    const bool opens = is_transfer(op.kind) && op.batch != batch;
    const bool closes = batch >= 0 && (!is_transfer(op.kind) || op.batch != batch);
    if (closes) text += ")";
    text += text.empty() ? "" : " ";
    if (opens) text += "(";
    text += words[static_cast<int>(op.kind)] + std::to_string(op.micro_batch) +
            std::string(static_cast<std::size_t>(op.virtual_stage), '\'');
    batch = is_transfer(op.kind) ? op.batch : -1;
  }
  return text + (batch >= 0 ? ")" : "");
}

// s, r: activations sent and received; S, R: gradients; ': of the second virtual stage.
TEST(PipelineSchedules, read_as_in_the_literature) {
  const auto text = [](PipelineKind kind, int m, int v, int rank) {
    return text_of(programs_of(kind, {2, m, v})[static_cast<std::size_t>(rank)]);
  };
  EXPECT_EQ(text(PipelineKind::gpipe, 2, 1, 0), "F0 (s0) F1 (s1 R0) B0 (R1) B1");
  EXPECT_EQ(text(PipelineKind::gpipe, 2, 1, 1), "(r0) F0 (r1) F1 B0 (S0) B1 (S1)");
  EXPECT_EQ(text(PipelineKind::one_f_one_b, 3, 1, 0),
            "F0 (s0) F1 (s1 R0) B0 F2 (s2 R1) B1 (R2) B2");
  EXPECT_EQ(text(PipelineKind::one_f_one_b, 3, 1, 1),
            "(r0) F0 B0 (S0 r1) F1 B1 (S1 r2) F2 B2 (S2)");
  EXPECT_EQ(text(PipelineKind::zb_h1, 3, 1, 0),
            "F0 (s0) F1 (s1 R0) b0 w0 F2 (s2 R1) b1 (R2) w1 b2 w2");
  EXPECT_EQ(text(PipelineKind::zb_h1, 3, 1, 1),
            "(r0) F0 b0 (S0 r1) F1 b1 (S1 r2) w0 F2 b2 (S2) w1 w2");
  EXPECT_EQ(text(PipelineKind::interleaved, 2, 2, 1),
            "(r0) F0 (s0 r1) F1 (s1 r0') F0' B0' (S0' r1') F1' B1' (S1' R0) B0 (S0 R1) B1 (S1)");
  EXPECT_EQ(text(PipelineKind::forward, 2, 2, 0), "F0 (s0) F1 (s1 r0') F0' (s0' r1') F1' (s1')");
}

// What is held until the last backward takes buffers: as many as activations, and in zb-h1 as gradients.
TEST(PipelineSchedules, need_buffers_for_what_they_hold) {
  const auto held = [](PipelineKind kind, const PipelineShape& shape, int rank) {
    return held_inputs(programs_of(kind, shape)[static_cast<std::size_t>(rank)]);
  };
  EXPECT_EQ(held(PipelineKind::one_f_one_b, {4, 8, 1}, 0)[0].activations, 0);
  EXPECT_EQ(held(PipelineKind::one_f_one_b, {4, 8, 1}, 1)[0].activations, 3);
  EXPECT_EQ(held(PipelineKind::one_f_one_b, {4, 8, 1}, 1)[0].gradients, 1);
  EXPECT_EQ(held(PipelineKind::one_f_one_b, {4, 8, 1}, 3)[0].gradients, 0);
  EXPECT_EQ(held(PipelineKind::gpipe, {4, 8, 1}, 3)[0].activations, 8);
  EXPECT_EQ(held(PipelineKind::forward, {4, 8, 1}, 2)[0].activations, 1);
  EXPECT_EQ(held(PipelineKind::zb_h1, {4, 8, 1}, 2)[0].gradients, 4);
  const auto alone = held(PipelineKind::interleaved, {1, 4, 2}, 0);
  EXPECT_EQ(alone[0].activations, 0);
  EXPECT_EQ(alone[1].activations, 1);
  EXPECT_EQ(alone[0].gradients, 1);
}

TEST(PipelineSchedules, that_do_not_fit_are_refused_with_what_does) {
  const auto message = [](PipelineKind kind, const PipelineShape& shape) {
    const Status status = build_pipeline(kind, shape).status();
    EXPECT_EQ(status.code(), Code::invalid_argument);
    return status.message();
  };
  EXPECT_NE(message(PipelineKind::one_f_one_b, {2, 2, 2}).find("interleaved"), std::string::npos);
  EXPECT_NE(message(PipelineKind::gpipe, {0, 1, 1}).find("at least one"), std::string::npos);
  EXPECT_NE(message(PipelineKind::gpipe, {1, 0, 1}).find("at least one"), std::string::npos);
  EXPECT_EQ(build_pipeline(PipelineKind::gpipe, {2, 1, 1}, 2).status().code(),
            Code::invalid_argument);
}

TEST(PipelineSchedules, have_words_that_can_be_read_back) {
  for (const PipelineKind kind : kKinds) EXPECT_EQ(parse_pipeline_kind(to_string(kind)), kind);
  EXPECT_EQ(parse_pipeline_kind("1F1B"), std::nullopt);
  EXPECT_EQ(std::size(kKinds), std::size_t{kPipelineKinds});
}

}  // namespace
}  // namespace tutti::pipeline
