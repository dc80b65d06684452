// Who waits for whom, read off the ranks' last notes.
#include <gtest/gtest.h>

#include "support/parsed_json.hpp"
#include "tool/fitted_table.hpp"
#include "tool/run/snapshot.hpp"
#include "tool/show/job_view.hpp"

namespace tutti::tool {
namespace {

using Lists = std::vector<std::vector<int>>;
constexpr std::int64_t kNow = 60'000'000'000;

RankView rank(int number, const char* group, std::uint64_t sequence, BoardState state,
              std::int64_t since = kNow - 1'000'000'000) {
  BoardNote note = BoardNote::of(Collective::all_reduce, group, sequence, state);
  note.time_ns = since;
  return {number, 100 + number, true, 0, note};
}

JobView view_of(std::vector<RankView> ranks) {
  JobView view;
  view.now = Nanoseconds(kNow);
  view.ranks = std::move(ranks);
  return view;
}

TEST(JobSnapshot, those_in_a_call_wait_for_those_who_have_not_come) {
  EXPECT_EQ(waits_for(view_of({rank(0, "world", 7, BoardState::running),
                               rank(1, "world", 6, BoardState::done),
                               rank(2, "world", 7, BoardState::running)})),
            (Lists{{1}, {}, {1}}));
}

TEST(JobSnapshot, who_has_a_call_to_begin_after_another_one_has_not_come) {
  EXPECT_EQ(waits_for(view_of({rank(0, "world", 7, BoardState::running),
                               rank(1, "world", 7, BoardState::waiting),
                               rank(2, "world", 8, BoardState::waiting)})),
            (Lists{{1}, {}, {}}));
}

TEST(JobSnapshot, a_call_that_has_just_begun_is_no_wait) {
  EXPECT_EQ(waits_for(view_of({rank(0, "world", 7, BoardState::running, kNow - 1'000'000),
                               rank(1, "world", 6, BoardState::done)})),
            (Lists{{}, {}}));
}

TEST(JobSnapshot, a_rank_that_has_said_nothing_is_waited_for) {
  EXPECT_EQ(waits_for(view_of({rank(0, "world", 0, BoardState::running), {1, 101, true, 0, {}}})),
            (Lists{{1}, {}}));
}

TEST(JobSnapshot, who_is_in_another_group_may_not_be_a_member) {
  EXPECT_EQ(waits_for(view_of({rank(0, "rows", 3, BoardState::running),
                               rank(1, "columns", 1, BoardState::running),
                               rank(2, "rows", 2, BoardState::done)})),
            (Lists{{2}, {}, {}}));
  // Of the world everybody is one.
  EXPECT_EQ(waits_for(view_of({rank(0, "world", 3, BoardState::running),
                               rank(1, "columns", 9, BoardState::done)})),
            (Lists{{1}, {}}));
}

TEST(JobSnapshot, the_dead_wait_for_nobody_but_are_waited_for) {
  auto view =
      view_of({rank(0, "world", 7, BoardState::running), rank(1, "world", 6, BoardState::running)});
  view.ranks[1].alive = false;
  view.ranks[1].exit_code = 137;
  EXPECT_EQ(waits_for(view), (Lists{{1}, {}}));
  const Json document = parsed(to_json(view));
  EXPECT_EQ(document["ranks"][1]["exit_code"], 137);
  EXPECT_EQ(document["ranks"][1]["state"], "ended");
}

TEST(JobSnapshot, whatever_a_rank_writes_stays_one_line_of_json) {
  auto view = view_of({rank(0, "a\"b\n\xff\x1b[2J", 7, BoardState::running)});
  view.program = "\xfe\xff";
  const std::string text = to_json(view);
  EXPECT_EQ(text.find('\n'), std::string::npos);
  EXPECT_EQ(text.find('\x1b'), std::string::npos);
  const Json document = parsed(text);
  EXPECT_EQ(document["ranks"][0]["group"], "a\"b???[2J");
}

TEST(JobSnapshot, labels_get_a_column_where_there_are_any) {
  auto view =
      view_of({rank(0, "world", 7, BoardState::done), rank(1, "world", 7, BoardState::done)});
  const std::string without = job_table(parsed(to_json(view)), 10, kAnyWidth);
  EXPECT_EQ(without.find("label"), std::string::npos) << without;
  view.ranks[1].label = "dp 1, tp 0\x1b";
  const Json document = parsed(to_json(view));
  EXPECT_EQ(document["ranks"][0].find("label"), nullptr);
  EXPECT_EQ(document["ranks"][1]["label"], "dp 1, tp 0?");
  const std::string with = job_table(document, 10, kAnyWidth);
  EXPECT_NE(with.find("   1  dp 1, tp 0?"), std::string::npos) << with;
}

}  // namespace
}  // namespace tutti::tool
