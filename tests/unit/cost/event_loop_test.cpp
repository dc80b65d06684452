// What waits for what, on cores, wires and in meetings: small graphs, by hand.
#include "cost/event_loop.hpp"

#include <gtest/gtest.h>

namespace tutti::cost {
namespace {

using Does = Node::Does;

// Ranks on hosts of one, copies at 1 GB/s and folds at half that.
Site cores_only(int seats) {
  Site site;
  for (int seat = 0; seat < seats; ++seat) site.host_of.push_back(seat);
  site.copy_byte_s = 1e-9;
  site.fold_byte_s = 2e-9;
  return site;
}

PlayOptions whole() {
  PlayOptions options;
  options.whole_messages = true;
  return options;
}

double seconds(OpGraph& graph, const Site& site, double bytes, const PlayOptions& options) {
  EXPECT_TRUE(graph.finish(site, 0).ok());
  const auto ends = play(graph, site, Standing::everybody(site), {{bytes, 0}}, options);
  EXPECT_EQ(ends.size(), 1U);
  return ends.empty() ? 0 : ends[0].seconds;
}

TEST(EventLoop, a_core_does_one_thing_after_another) {
  OpGraph graph;
  graph.begin_rank(0, 0);
  graph.work(Does::copies, 1);
  graph.work(Does::folds, 1, 3);
  EXPECT_NEAR(seconds(graph, cores_only(1), 1e6, whole()), 1e-3 + 6e-3, 1e-12);
}

TEST(EventLoop, a_meeting_waits_for_everybody_and_then_for_its_flags) {
  // Each copies its part, they meet, each folds; rank r has r + 1 parts to copy.
  OpGraph graph;
  std::uint32_t copies[3];
  std::uint32_t folds[3];
  for (int rank = 0; rank < 3; ++rank) {
    graph.begin_rank(rank, 0);
    copies[rank] = graph.work(Does::copies, rank + 1);
    folds[rank] = graph.work(Does::folds, 1);
  }
  const std::uint32_t meeting = graph.meeting();
  for (int rank = 0; rank < 3; ++rank) {
    graph.lead_to(copies[rank], meeting);
    graph.lead_to(meeting, folds[rank]);
  }
  Site site = cores_only(3);
  site.meet_s = 5e-6;
  EXPECT_NEAR(seconds(graph, site, 1e6, whole()), 3e-3 + 5e-6 + 2e-3, 1e-12);
}

TEST(EventLoop, pieces_are_handed_on_before_the_whole_is_done) {
  // Copy, and another rank's copy of what was copied: four pieces overlap but the first and last.
  OpGraph graph;
  graph.begin_rank(0, 0);
  const auto first = graph.work(Does::copies, 1);
  graph.begin_rank(1, 0);
  const auto second = graph.work(Does::copies, 1);
  graph.lead_to(first, second);
  Site site = cores_only(2);
  site.segment_bytes = 250e3;
  EXPECT_NEAR(seconds(graph, site, 1e6, {}), 1.25e-3, 1e-12);
}

TEST(EventLoop, ranks_that_outnumber_the_cores_take_turns) {
  const auto with_cores = [](int cores, int busy_ranks) {
    OpGraph graph;
    for (int rank = 0; rank < 8; ++rank) {
      graph.begin_rank(rank, 0);
      if (rank < busy_ranks) graph.work(Does::copies, 1);
    }
    Site site = cores_only(8);
    site.machine_of.assign(8, 0);
    site.cores = cores;
    return seconds(graph, site, 1e6, whole());
  };
  EXPECT_NEAR(with_cores(0, 8), 1e-3, 1e-12);
  EXPECT_NEAR(with_cores(8, 8), 1e-3, 1e-12);
  EXPECT_NEAR(with_cores(2, 8), 4e-3, 1e-12);
  EXPECT_NEAR(with_cores(2, 1), 1e-3, 1e-12);  // the others leave it a core
}

// ---- messages, as programs have them

schedule::Program program(int rank, int size, std::vector<schedule::Op> ops) {
  schedule::Program made;
  made.collective = Collective::all_reduce;
  made.size = size;
  made.rank = rank;
  made.cut = 1;
  made.scratch = {0};
  made.ops = std::move(ops);
  return made;
}

constexpr schedule::Region kInput{schedule::Space::input, 0, 1};
constexpr schedule::Region kOutput{schedule::Space::output, 0, 1};
constexpr schedule::Region kScratch{schedule::Space::scratch, 0, 1};

double one_message(const Site& site, const schedule::Region& into, double bytes,
                   const PlayOptions& options) {
  using schedule::OpKind;
  OpGraph graph;
  graph.add(program(0, 2, {{OpKind::send, 0, 1, {}, kInput, {}, false}}), site, {0, 1}, 0);
  graph.add(program(1, 2, {{OpKind::recv, 0, 0, into, {}, {}, false}}), site, {0, 1}, 0);
  return seconds(graph, site, bytes, options);
}

TEST(EventLoop, over_a_wire_a_message_takes_its_latency_and_its_bytes) {
  Site site = cores_only(2);
  site.between.latency_s = 10e-6;
  site.between.overhead_s = 2e-6;
  site.between.way = *Curve::from_knots({{1, 1e-9}});
  EXPECT_NEAR(one_message(site, kOutput, 1e6, whole()), 10e-6 + 1e-3, 1e-12);
  // What the cores do for its bytes is done while they are on their way, as long as it takes less.
  site.between.send_byte_s = site.between.receive_byte_s = 0.5e-9;
  EXPECT_NEAR(one_message(site, kOutput, 1e6, whole()), 10e-6 + 1e-3, 1e-12);
  site.between.send_byte_s = 3e-9;
  EXPECT_NEAR(one_message(site, kOutput, 1e6, whole()), 10e-6 + 3e-3, 1e-12);
}

TEST(EventLoop, without_a_wire_a_message_is_copied_in_and_out_unless_it_is_only_folded) {
  Site site = cores_only(2);
  site.host_of = {0, 0};
  site.within.latency_s = 1e-6;
  site.within.send_byte_s = site.within.receive_byte_s = 1e-9;
  site.within.folds_read = true;
  EXPECT_NEAR(one_message(site, kOutput, 1e6, whole()), 1e-6 + 2e-3, 1e-12);
  EXPECT_NEAR(one_message(site, kScratch, 1e6, whole()), 1e-6 + 1e-3, 1e-12);
  site.within.segment_bytes = 1e5;  // ten pieces: all but one of the second copies beside the first
  EXPECT_NEAR(one_message(site, kOutput, 1e6, {}), 1e-6 + 1.1e-3, 1e-12);
}

// A core that folds for long still looks after its messages: only their last piece waits for it.
TEST(EventLoop, handling_a_message_does_not_wait_for_long_work) {
  using schedule::OpKind;
  Site site = cores_only(2);
  site.between.latency_s = 10e-6;
  site.between.overhead_s = 1e-6;
  site.between.way = *Curve::from_knots({{1, 1e-9}});
  site.segment_bytes = site.between.segment_bytes = 1e5;
  OpGraph graph;
  graph.add(program(0, 2,
                    {{OpKind::copy, 0, schedule::kLocal, kScratch, kInput, {}, false},
                     {OpKind::send, 0, 1, {}, kScratch, {}, false}}),
            site, {0, 1}, 0);
  graph.add(program(1, 2, {{OpKind::recv, 0, 0, kOutput, {}, {}, false}}), site, {0, 1}, 0);
  // Copy and wire take a millisecond each, nine tenths of it at once, and handling ten pieces.
  EXPECT_NEAR(seconds(graph, site, 1e6, {}), 1.1e-3 + 10e-6, 15e-6);
}

TEST(EventLoop, long_messages_from_several_hosts_at_once_come_in_more_slowly) {
  using schedule::OpKind;
  const auto two_comers = [](double incast, std::uint32_t second_step) {
    Site site = cores_only(3);
    site.between.way = *Curve::from_knots({{1, 1e-9}});
    site.incast = incast;
    OpGraph graph;
    for (int rank = 0; rank < 2; ++rank)
      graph.add(program(rank, 3, {{OpKind::send, rank * second_step, 2, {}, kInput, {}, false}}),
                site, {0, 1, 2}, 0);
    graph.add(program(2, 3,
                      {{OpKind::recv, 0, 0, kOutput, {}, {}, false},
                       {OpKind::recv, second_step, 1, kScratch, {}, {}, false}}),
              site, {0, 1, 2}, 0);
    return seconds(graph, site, 1e6, whole());
  };
  EXPECT_NEAR(two_comers(1, 0), 2e-3, 1e-12);
  EXPECT_NEAR(two_comers(1.5, 0), 3e-3, 1e-12);
  EXPECT_NEAR(two_comers(1.5, 1), 2e-3, 1e-12);  // one partner a step
}

}  // namespace
}  // namespace tutti::cost
