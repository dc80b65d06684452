// Properties that a proof of correctness does not show: who works how much, and how parts are
// joined.
#include <gtest/gtest.h>

#include <bit>

#include "schedule/build/draft.hpp"
#include "schedule/compose.hpp"
#include "schedule/hazards.hpp"
#include "schedule/text.hpp"
#include "worlds.hpp"

namespace tutti::schedule {
namespace {

using builders::input;
using builders::output;

// Which halves of the message this rank folds, so: in which trees it is not a leaf.
int trees_worked_in(const Program& program) {
  bool works[2] = {false, false};
  for (const Op& op : program.ops) {
    if (op.kind == OpKind::reduce) works[op.dst.first / (program.cut / 2)] = true;
  }
  return works[0] + works[1];
}

TEST(DoubleBinaryTree, no_rank_works_inside_both_trees_but_one_when_n_is_odd) {
  for (int n = 2; n <= 300; ++n) {
    int in_both = 0;
    for (int rank = 0; rank < n; ++rank) {
      const auto program = build(Algorithm::double_binary_tree, {.size = n, .rank = rank});
      ASSERT_TRUE(program.ok());
      in_both += trees_worked_in(*program) == 2;
    }
    EXPECT_EQ(in_both, n % 2) << "n = " << n;
  }
}

TEST(DoubleBinaryTree, a_rank_has_at_most_three_neighbours_in_a_tree) {
  for (int n : {2, 3, 17, 64, 100}) {
    for (int rank = 0; rank < n; ++rank) {
      const auto program = build(Algorithm::double_binary_tree, {.size = n, .rank = rank});
      ASSERT_TRUE(program.ok());
      int sends[2] = {0, 0};
      for (const Op& op : program->ops) {
        if (op.kind == OpKind::send) ++sends[op.src.first / (program->cut / 2)];
      }
      const int pipe = static_cast<int>(program->cut / 2);
      EXPECT_LE(sends[0], 3 * pipe);
      EXPECT_LE(sends[1], 3 * pipe);
    }
  }
}

// Chunks that a rank sends, the measure of a bandwidth-optimal algorithm.
std::uint64_t chunks_sent(const Program& program) {
  std::uint64_t chunks = 0;
  for (const Op& op : program.ops) {
    if (op.kind == OpKind::send) chunks += op.src.count;
  }
  return chunks;
}

TEST(Bandwidth, each_rank_sends_no_more_than_it_must) {
  for (int n : {2, 4, 8, 16, 64}) {
    const auto most = static_cast<std::uint64_t>(n - 1);
    for (Algorithm algorithm :
         {Algorithm::ring, Algorithm::halving_doubling, Algorithm::pairwise, Algorithm::direct}) {
      const auto program = build(algorithm, {.size = n, .rank = n / 2});
      ASSERT_TRUE(program.ok());
      EXPECT_EQ(program->cut, static_cast<std::uint32_t>(n));
      EXPECT_EQ(chunks_sent(*program), 2 * most) << to_string(algorithm);
    }
    for (Algorithm algorithm : {Algorithm::ring, Algorithm::hypercube, Algorithm::bruck,
                                Algorithm::recursive_doubling, Algorithm::direct}) {
      const auto program =
          build(algorithm, {.collective = Collective::all_gather, .size = n, .rank = n / 2});
      ASSERT_TRUE(program.ok());
      EXPECT_EQ(chunks_sent(*program), most) << to_string(algorithm);
    }
  }
}

// Chunks that a host's ranks send to other hosts, by host.
std::vector<std::uint64_t> chunks_leaving(std::span<const Program> programs,
                                          std::span<const int> host_of) {
  std::vector<std::uint64_t> leaving(static_cast<std::size_t>(host_of.back()) + 1, 0);
  for (const Program& program : programs) {
    const int host = host_of[static_cast<std::size_t>(program.rank)];
    for (const Op& op : program.ops)
      if (op.kind == OpKind::send && host_of[static_cast<std::size_t>(op.peer)] != host)
        leaving[static_cast<std::size_t>(host)] += op.src.count;
  }
  return leaving;
}

std::vector<std::uint64_t> leave_hosts(Algorithm algorithm, Collective collective, int hosts,
                                       int each, ReductionOrder order = ReductionOrder::rank) {
  std::vector<int> host_of;
  for (int rank = 0; rank < hosts * each; ++rank) host_of.push_back(rank / each);
  Request request{.collective = collective, .size = hosts * each};
  request.host_of = host_of;
  request.order = order;
  const auto programs = build_all(algorithm, request);
  EXPECT_TRUE(programs.ok()) << programs.status().to_string();
  return programs.ok() ? chunks_leaving(*programs, host_of) : std::vector<std::uint64_t>();
}

// However many ranks a host has, the array leaves it once on its way to the fold, and less than once more
// on the way back; by pairwise raw parts leave it as often as it has ranks.
TEST(Chain, the_array_leaves_a_host_once_each_way) {
  for (const int hosts : {2, 3, 4, 8})
    for (const int each : {1, 2, 8}) {
      const auto n = static_cast<std::uint64_t>(hosts * each);
      const auto parts = leave_hosts(Algorithm::chain, Collective::reduce_scatter, hosts, each);
      for (int h = 0; h < hosts - 1; ++h) EXPECT_EQ(parts[static_cast<std::size_t>(h)], n);
      EXPECT_EQ(parts.back(), n - static_cast<std::uint64_t>(each));

      const auto whole = leave_hosts(Algorithm::chain, Collective::all_reduce, hosts, each);
      const auto strands = static_cast<std::uint64_t>(std::min(hosts - 1, 4));
      const std::uint64_t cut = static_cast<std::uint64_t>(each) * strands;
      for (const std::uint64_t chunks : whole) EXPECT_LE(chunks, 2 * cut);
      EXPECT_EQ(whole.back(), cut);
      if (hosts == 4) {
        EXPECT_EQ(whole[0], cut + cut * 2 / 3);
      }
      if (each == 1) continue;
      const auto raw = leave_hosts(Algorithm::pairwise, Collective::reduce_scatter, hosts, each);
      EXPECT_EQ(raw[0],
                n / static_cast<std::uint64_t>(hosts) * (n - static_cast<std::uint64_t>(each)));
    }
}

// Reduced inside first: 2(H-1)/H of the array leaves a host in an all_reduce, and half of that in a
// reduce_scatter, however many ranks it has.
TEST(TreeOrder, what_leaves_a_host_was_reduced_there_first) {
  for (const int hosts : {2, 3, 4, 8})
    for (const int each : {2, 4, 8}) {
      const auto n = static_cast<std::uint64_t>(hosts * each);
      const auto between = n - static_cast<std::uint64_t>(each);
      constexpr auto kTree = ReductionOrder::tree;
      const auto whole =
          leave_hosts(Algorithm::hierarchical, Collective::all_reduce, hosts, each, kTree);
      const auto parts =
          leave_hosts(Algorithm::hierarchical, Collective::reduce_scatter, hosts, each, kTree);
      EXPECT_EQ(whole, std::vector(static_cast<std::size_t>(hosts), 2 * between));
      EXPECT_EQ(parts, std::vector(static_cast<std::size_t>(hosts), between));
      if ((hosts & (hosts - 1)) != 0) continue;
      EXPECT_EQ(
          leave_hosts(Algorithm::halving_doubling, Collective::all_reduce, hosts, each, kTree),
          whole);
    }
}

TEST(Compose, a_part_gets_the_ranks_steps_and_chunks_of_the_whole) {
  const auto part = parse(
      "program reduce_scatter ring rank 0 of 2 root 0 cut 1\n  scratch 1 0\n"
      "  @0 send input[1] -> 1\n"
      "  @0 recv scratch[1] <- 1\n"
      "  @0 reduce output[0] = raw scratch[1] + raw input[0] + 1@4 finish\n");
  ASSERT_TRUE(part.ok());
  Program whole;
  whole.collective = Collective::all_reduce;
  whole.size = 9;
  whole.rank = 5;
  whole.cut = 4;
  whole.scratch = {3};
  const int ranks[] = {5, 7};
  Placement placement{
      .ranks = ranks, .first_step = 10, .input = input(0), .output = output(2), .scale = 2};
  placement.raw = false;
  placement.finish = false;
  append(whole, part->front(), placement);
  EXPECT_EQ(print(whole),
            "program all_reduce automatic rank 5 of 9 root 0 cut 4\n"
            "  scratch 3 2 3 0 1\n"
            "  @10 send input[2..3] -> 7\n"
            "  @10 recv scratch[3..4] <- 7\n"
            "  @10 reduce output[2..3] = scratch[3..4] + input[0..1] + 7@14\n");
}

TEST(Hazards, aliasing_decides_who_waits_for_whom) {
  const std::string ops = "  @0 send input[0] -> 1\n  @0 recv output[0] <- 1\n";
  const auto apart = parse("program all_reduce ring rank 0 of 2 root 0 cut 1\n" + ops);
  const auto inside = parse("program all_reduce ring rank 0 of 2 root 0 cut 1 in_place\n" + ops);
  ASSERT_TRUE(apart.ok() && inside.ok());
  EXPECT_TRUE(hazards(apart->front()).empty());
  EXPECT_EQ(hazards(inside->front()), (std::vector<Hazard>{{0, 1}}));
}

TEST(Hazards, an_op_that_folds_into_its_operand_does_not_wait_for_itself) {
  const auto program = parse(
      "program all_reduce ring rank 0 of 2 root 0 cut 1\n  scratch 0\n"
      "  @0 recv scratch[0] <- 1\n"
      "  @0 reduce scratch[0] = raw scratch[0] + raw input[0]\n"
      "  @1 send scratch[0] -> 1\n");
  ASSERT_TRUE(program.ok());
  for (const auto& [earlier, later] : hazards(program->front())) EXPECT_LT(earlier, later);
  EXPECT_EQ(hazards(program->front()).back(), (Hazard{1, 2}));
}

TEST(Extents, two_chunks_of_one_message_have_one_id) {
  Program sender, taker;
  sender.collective = taker.collective = Collective::all_to_all;
  sender.size = taker.size = 5;
  sender.cut = taker.cut = 3;
  sender.rank = 1;
  taker.rank = 4;
  for (std::uint32_t j = 0; j < 3; ++j) {
    EXPECT_EQ(extent_of(sender, Space::input, 4 * 3 + j), extent_of(taker, Space::output, 3 + j));
  }
  EXPECT_EQ(extent_count(Collective::all_to_all, 5, 3), 75u);
  EXPECT_EQ(extent_count(Collective::all_gather, 5, 3), 15u);
  EXPECT_EQ(extent_count(Collective::all_reduce, 5, 3), 3u);
}

TEST(Extents, sides_that_a_rank_does_not_have_have_no_chunks) {
  Program program;
  program.size = 4;
  program.rank = 1;
  program.root = 2;
  for (Collective collective : {Collective::reduce, Collective::gather}) {
    program.collective = collective;
    EXPECT_EQ(chunk_count(program, Space::output), 0u);
    EXPECT_EQ(chunk_count(program, Space::input), 1u);
  }
  program.collective = Collective::scatter;
  EXPECT_EQ(chunk_count(program, Space::input), 0u);
  program.rank = 2;
  EXPECT_EQ(chunk_count(program, Space::input), 4u);
  program.collective = Collective::broadcast;
  EXPECT_EQ(chunk_count(program, Space::input), 0u);
}

}  // namespace
}  // namespace tutti::schedule
