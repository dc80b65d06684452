#include <gtest/gtest.h>

#include "tool/trace/divergence.hpp"

namespace tutti::tool::trace {
namespace {

RecordedCall call(const std::string& collective, bool finished, std::int64_t time = 0,
                  std::uint64_t bytes = 64) {
  return {collective, "f32", "sum", bytes, "dp", finished, time};
}

Flight flight(int rank, std::map<std::uint64_t, RecordedCall> calls, std::vector<int> lost = {}) {
  Flight made;
  made.rank = rank;
  made.has_dump = true;
  made.reason = "it failed";
  made.lost = std::move(lost);
  made.groups[3] = {"dp", {0, 1, 2, 3}, std::move(calls)};
  return made;
}

Divergence verdict(std::vector<Flight> ranks) {
  Flights flights;
  flights.size = 4;
  flights.ranks = std::move(ranks);
  return find_divergence(flights);
}

TEST(divergence, the_rank_that_called_something_else_is_named) {
  const auto common = [] {
    return std::map<std::uint64_t, RecordedCall>{{1040, call("all_gather", true)},
                                                 {1041, call("all_reduce", false)}};
  };
  const auto found =
      verdict({flight(0, common()), flight(1, common()),
               flight(2, {{1040, call("all_gather", true)}, {1041, call("broadcast", false)}}),
               flight(3, common())});
  EXPECT_EQ(found.kind, Divergence::Kind::mismatch);
  EXPECT_EQ(found.ranks, std::vector<int>{2});
  EXPECT_EQ(
      found.text,
      "Rank 2 diverged first: it called broadcast #1041 (64 B of f32) on group 'dp' while ranks "
      "0, 1 and 3 called all_reduce #1041 (64 B of f32, sum). Up to #1040, all_gather, all ranks "
      "had agreed.");
}

TEST(divergence, the_culprit_is_named_by_its_label_also_where_only_others_know_it) {
  const std::vector<std::string> labels{"dp 0, tp 0", "dp 0, tp 1", "dp 1, tp 0", "dp 1, tp 1"};
  std::vector<Flight> ranks{flight(0, {{7, call("all_reduce", false, 5)}}, {3}),
                            flight(1, {{7, call("all_reduce", false, 6)}}, {3}),
                            flight(2, {{7, call("all_reduce", false, 7)}}, {3})};
  ranks[1].labels = labels;
  const auto found = verdict(std::move(ranks));
  EXPECT_EQ(found.text.rfind("Rank 3 (dp 1, tp 1) never reached all_reduce #7", 0), 0u)
      << found.text;
}

TEST(divergence, one_against_one_blames_neither) {
  const auto found = verdict(
      {flight(0, {{4, call("scan", true)}}), flight(1, {{4, call("scan", true)}}),
       flight(2, {{5, call("broadcast", false)}}), flight(3, {{5, call("all_reduce", false)}})});
  EXPECT_EQ(found.kind, Divergence::Kind::mismatch);
  EXPECT_EQ(found.ranks, (std::vector<int>{2, 3}));
  EXPECT_NE(found.text.find("Ranks 2 and 3 parted"), std::string::npos) << found.text;
}

TEST(divergence, the_same_collective_with_other_sizes_is_a_mismatch_too) {
  const auto found = verdict({flight(0, {{5, call("all_reduce", false)}}),
                              flight(1, {{5, call("all_reduce", false, 0, 128)}}),
                              flight(2, {{5, call("all_reduce", false)}})});
  EXPECT_EQ(found.kind, Divergence::Kind::mismatch);
  EXPECT_EQ(found.ranks, std::vector<int>{1});
  EXPECT_NE(found.text.find("(128 B of f32, sum)"), std::string::npos) << found.text;
}

TEST(divergence, of_two_groups_the_one_that_differed_first_counts) {
  std::vector<Flight> ranks;
  for (int rank = 0; rank < 4; ++rank) {
    Flight each = flight(rank, {{7, call(rank == 1 ? "reduce" : "scan", false, 500)}});
    each.groups[4] = {
        "tp", {0, 1, 2, 3}, {{9, call(rank == 3 ? "barrier" : "all_reduce", false, 400)}}};
    ranks.push_back(std::move(each));
  }
  const auto found = verdict(std::move(ranks));
  EXPECT_EQ(found.group, "tp");
  EXPECT_EQ(found.ranks, std::vector<int>{3});
}

TEST(divergence, a_rank_without_a_dump_that_others_lost_was_killed) {
  const auto there = [](int rank) {
    return flight(rank, {{8, call("all_reduce", true)}, {9, call("all_reduce", false)}}, {3});
  };
  const auto found = verdict({there(0), there(1), there(2)});
  EXPECT_EQ(found.kind, Divergence::Kind::absent);
  EXPECT_EQ(found.ranks, std::vector<int>{3});
  EXPECT_NE(found.text.find("Rank 3 never reached all_reduce #9"), std::string::npos) << found.text;
  EXPECT_NE(found.text.find("killed or crashed"), std::string::npos) << found.text;
}

TEST(divergence, who_heard_of_a_death_before_it_came_is_not_to_blame) {
  const auto found = verdict({flight(0, {{9, call("all_reduce", false)}}, {3}),
                              flight(1, {{8, call("all_reduce", true)}}, {3}),
                              flight(2, {{9, call("all_reduce", false)}}, {3})});
  EXPECT_EQ(found.ranks, std::vector<int>{3});
  EXPECT_NE(found.text.find("Rank 1 had heard of it"), std::string::npos) << found.text;
}

TEST(divergence, links_to_ranks_that_failed_and_left_do_not_make_them_dead) {
  const auto found = verdict({flight(0, {{9, call("all_reduce", false)}}, {3, 2}),
                              flight(1, {{9, call("all_reduce", false)}}, {3}),
                              flight(2, {{8, call("all_reduce", true)}}, {3})});
  EXPECT_EQ(found.ranks, std::vector<int>{3});
}

TEST(divergence, a_rank_that_died_between_operations_is_named_with_its_last) {
  Flight dead = flight(3, {{8, call("all_gather", true, 700)}});
  dead.has_dump = false;
  dead.has_trace = true;
  const auto found = verdict({flight(0, {{8, call("all_gather", true)}}, {3}),
                              flight(1, {{8, call("all_gather", true)}}),
                              flight(2, {{8, call("all_gather", true)}}), dead});
  EXPECT_EQ(found.kind, Divergence::Kind::absent);
  EXPECT_EQ(found.ranks, std::vector<int>{3});
  EXPECT_NE(found.text.find("Rank 3's last was all_gather #8"), std::string::npos) << found.text;
  EXPECT_NE(found.text.find("Rank 0 lost the link to rank 3"), std::string::npos) << found.text;
}

TEST(divergence, a_rank_that_is_in_another_group_is_found_there) {
  Flight late = flight(1, {{8, call("all_reduce", true, 1000)}});
  late.groups[4] = {"tp", {0, 1, 2, 3}, {{2, call("barrier", false, 1100)}}};
  const auto there = [](int rank) {
    Flight made =
        flight(rank, {{8, call("all_reduce", true, 1000)}, {9, call("scan", false, 5'001'000)}});
    made.groups[4] = {"tp", {0, 1, 2, 3}, {}};
    return made;
  };
  const auto found = verdict({there(0), late, there(2), there(3)});
  EXPECT_EQ(found.kind, Divergence::Kind::absent);
  // The first that somebody was left alone in: rank 1 went to the barrier of 'tp' before.
  EXPECT_EQ(found.group, "tp");
  EXPECT_EQ(found.others, std::vector<int>{1});
}

TEST(divergence, ranks_that_agree_have_no_culprit) {
  std::vector<Flight> ranks;
  for (int rank = 0; rank < 4; ++rank) ranks.push_back(flight(rank, {{1, call("barrier", true)}}));
  const auto found = verdict(std::move(ranks));
  EXPECT_EQ(found.kind, Divergence::Kind::none);
  EXPECT_NE(found.text.find("They gave: it failed."), std::string::npos) << found.text;
}

TEST(parse_dump, a_dump_that_lacks_a_field_is_named) {
  const auto dump = parse_dump("d.json", R"({"tutti_recorder":1,"rank":0})", nullptr);
  ASSERT_FALSE(dump.ok());
  EXPECT_EQ(dump.status().code(), Code::corrupt);
  EXPECT_NE(dump.status().message().find("d.json"), std::string::npos);
}

}  // namespace
}  // namespace tutti::tool::trace
