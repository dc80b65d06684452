// Virtual time against closed forms, and against what cannot be otherwise.
#include <algorithm>
#include <limits>
#include <random>

#include "shapes.hpp"

namespace tutti::pipeline {
namespace {

PipelineTimeline play(PipelineKind kind, const PipelineShape& shape, PipelineDurations durations) {
  const auto timeline = simulate_pipeline(programs_of(kind, shape), durations);
  EXPECT_TRUE(timeline.ok()) << describe(kind, shape) << ": " << timeline.status().to_string();
  return timeline.ok() ? *timeline : PipelineTimeline();
}

// The closed forms, for every size and duration at which they hold.
TEST(PipelineBubble, is_the_closed_form_where_stages_are_alike) {
  int compared = 0;
  for (const PlaceDurations& place : {PlaceDurations{1, 1, 1}, PlaceDurations{1, 1.25, 0.75},
                                      PlaceDurations{2, 0.5, 0.5}, PlaceDurations{0.5, 3, 1}})
    each_shape(8, 24, 4, [&](PipelineKind kind, const PipelineShape& shape) {
      const auto closed_form = uniform_bubble_s(kind, shape, place);
      if (!closed_form) return;
      ++compared;
      EXPECT_NEAR(play(kind, shape, {{place}}).bubble_s(), *closed_form, 1e-9)
          << describe(kind, shape);
    });
  EXPECT_GE(compared, 4000);
  EXPECT_FALSE(uniform_bubble_s(PipelineKind::zb_h1, {4, 8, 1}, {0.5, 3, 1})) << "W > F";
  EXPECT_FALSE(uniform_bubble_s(PipelineKind::interleaved, {4, 6, 2}, {1, 1, 1}));
}

TEST(PipelineBubble, of_interleaved_stages_is_1_over_v_and_of_zb_h1_a_third) {
  const auto bubble = [](PipelineKind kind, int v) {
    const double f = 1.0 / v;
    return play(kind, {4, 8, v}, {{{f, f, f}}}).bubble_ratio();
  };
  EXPECT_NEAR(bubble(PipelineKind::gpipe, 1), 3.0 / 8, 1e-12);
  EXPECT_NEAR(bubble(PipelineKind::one_f_one_b, 1), 3.0 / 8, 1e-12);
  EXPECT_NEAR(bubble(PipelineKind::interleaved, 2), 3.0 / 16, 1e-12);
  EXPECT_NEAR(bubble(PipelineKind::interleaved, 4), 3.0 / 32, 1e-12);
  EXPECT_NEAR(bubble(PipelineKind::zb_h1, 1), 1.0 / 8, 1e-12);
}

// Neither more ops nor the wire can make the busiest rank less busy; and what is idle is idle.
TEST(PipelineBubble, is_never_negative_and_shares_add_up) {
  each_shape(5, 9, 3, [&](PipelineKind kind, const PipelineShape& shape) {
    const PipelineTimeline timeline = play(kind, shape, {{{1, 1, 1}}, 0.25});
    EXPECT_GE(timeline.bubble_s(), -1e-12);
    EXPECT_NEAR(timeline.bubble_share() * timeline.step_s, timeline.bubble_s(), 1e-9);
    const double work =
        (kind == PipelineKind::forward ? 1 : 3) * shape.micro_batches * shape.virtual_stages;
    for (const double busy : timeline.busy_s) EXPECT_NEAR(busy, work, 1e-9);
  });
}

TEST(PipelineTransfers, cost_what_the_closed_form_says_where_they_are_short) {
  const double x = 0.125;
  int compared = 0;
  each_shape(8, 24, 4, [&](PipelineKind kind, const PipelineShape& shape) {
    const auto closed_form = uniform_exposed_messages(kind, shape);
    if (!closed_form) return;
    ++compared;
    const double with = play(kind, shape, {{{1, 1, 1}}, x}).step_s;
    const double without = play(kind, shape, {{{1, 1, 1}}}).step_s;
    EXPECT_NEAR((with - without) / x, *closed_form, 1e-9) << describe(kind, shape);
  });
  EXPECT_GE(compared, 1000);
}

// Ranks that stop for each batch wait for nearly every message.
TEST(PipelineTransfers, cost_1f1b_two_messages_a_micro_batch_if_ranks_stop_for_them) {
  const double x = 0.125;
  for (int p = 2; p <= 8; ++p)
    for (int m = 2; m <= 24; ++m) {
      const PipelineShape shape{p, m, 1};
      const auto timeline = play(PipelineKind::one_f_one_b, shape, {{{1, 1, 1}}, x, false});
      const int stopping = p == 2 ? m + 1 : 2 * (m + p - 2) - 1;
      EXPECT_NEAR((timeline.step_s - 3.0 * (m + p - 1)) / x, stopping, 1e-9)
          << describe(PipelineKind::one_f_one_b, shape);
    }
}

TEST(PipelineTransfers, between_two_ranks_go_one_after_the_other) {
  // Two forwards at once, and a wire that takes as long as ten of them.
  const auto timeline = play(PipelineKind::forward, {2, 4, 1}, {{{1, 0, 0}}, 10});
  for (int i = 0; i < 4; ++i)
    EXPECT_NEAR(timeline.ranks[1][static_cast<std::size_t>(i)].begin_s, 1 + 10.0 * (i + 1), 1e-9);
}

TEST(PipelineSimulation, keeps_to_the_order_and_to_what_ops_depend_on) {
  std::mt19937 random(7);
  std::uniform_real_distribution<double> seconds(0.1, 2);
  for (const PipelineKind kind : kTraining)
    for (const int v : {1, 2}) {
      if (v > 1 && !takes_virtual_stages(kind)) continue;
      const PipelineShape shape{3, 7, v};
      PipelineDurations durations;
      for (int i = 0; i < shape.places(); ++i)
        durations.places.push_back({seconds(random), seconds(random), seconds(random)});
      durations.transfer_s = 0.3;
      for (const bool overlap : {true, false}) {
        durations.overlap = overlap;
        const PipelineTimeline timeline = play(kind, shape, durations);
        // When each place was through with each micro-batch, forwards and backwards.
        std::vector<double> forward(static_cast<std::size_t>(shape.places() * 7)), back = forward;
        const auto at = [&](int place, int i) { return static_cast<std::size_t>(place * 7 + i); };
        double last = 0;
        for (int rank = 0; rank < 3; ++rank)
          for (const auto& slice : timeline.ranks[static_cast<std::size_t>(rank)]) {
            const int place = shape.place(rank, slice.virtual_stage);
            last = std::max(last, slice.end_s);
            if (slice.kind == PipelineOpKind::forward)
              forward[at(place, slice.micro_batch)] = slice.end_s;
            else if (slice.kind != PipelineOpKind::backward_weight)
              back[at(place, slice.micro_batch)] = slice.end_s;
          }
        for (int place = 1; place < shape.places(); ++place)
          for (int i = 0; i < 7; ++i) {
            EXPECT_GT(forward[at(place, i)], forward[at(place - 1, i)] + 0.3);
            EXPECT_GT(back[at(place - 1, i)], back[at(place, i)] + 0.3);
          }
        EXPECT_NEAR(timeline.step_s, last, overlap ? 1e-9 : 0.4);
      }
    }
}

TEST(PipelineSimulation, refuses_durations_that_do_not_fit) {
  const auto programs = programs_of(PipelineKind::gpipe, {3, 2, 1});
  const auto code = [&](const PipelineDurations& durations) {
    return simulate_pipeline(programs, durations).status().code();
  };
  EXPECT_EQ(code({{}}), Code::invalid_argument);
  EXPECT_EQ(code({{{1, 1, 1}, {1, 1, 1}}}), Code::invalid_argument);
  EXPECT_EQ(code({{{-1, 1, 1}}}), Code::invalid_argument);
  EXPECT_EQ(code({{{1, 1, 1}}, std::numeric_limits<double>::infinity()}), Code::invalid_argument);
  EXPECT_EQ(simulate_pipeline({}, {{{1, 1, 1}}}).status().code(), Code::invalid_argument);
}

}  // namespace
}  // namespace tutti::pipeline
