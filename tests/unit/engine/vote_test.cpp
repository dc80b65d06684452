// Who is wrong when ranks differ: the fewer; of as many, those without the lowest rank.
#include "engine/vote.hpp"

#include <gtest/gtest.h>

#include <numeric>

namespace tutti::engine {
namespace {

Vote ask(const std::vector<std::string>& words) {
  std::vector<Said> said;
  for (std::size_t rank = 0; rank < words.size(); ++rank)
    said.push_back({static_cast<int>(rank), words[rank]});
  return vote(said, [](int rank) { return "rank " + std::to_string(rank) + " (here)"; });
}

TEST(Vote, names_the_one_that_stands_alone_wherever_it_is) {
  for (int odd = 0; odd < 5; ++odd) {
    std::vector<std::string> words(5, "a()");
    words[static_cast<std::size_t>(odd)] = "b()";
    EXPECT_EQ(ask(words).culprit, odd);
  }
}

TEST(Vote, sides_with_the_lowest_rank_when_opinions_are_as_strong) {
  EXPECT_EQ(ask({"a()", "b()"}).culprit, 1);
  EXPECT_EQ(ask({"a()", "b()", "b()", "a()"}).culprit, 1);
  EXPECT_EQ(ask({"a()", "b()", "c()"}).culprit, 1);
}

TEST(Vote, is_tied_where_as_many_say_something_else) {
  EXPECT_TRUE(ask({"a()", "b()"}).tied);
  EXPECT_TRUE(ask({"a()", "b()", "c()", "b()", "a()"}).tied);
  EXPECT_FALSE(ask({"a()", "b()", "b()"}).tied);
  EXPECT_FALSE(ask({"a()", "a()"}).tied);
}

TEST(Vote, names_nobody_when_all_agree) { EXPECT_EQ(ask({"a()", "a()"}).culprit, -1); }

TEST(Vote, tells_who_called_what) {
  EXPECT_EQ(ask({"a()", "b()", "a()"}).table, "ranks 0, 2 called a(), rank 1 (here) called b()");
}

TEST(Vote, keeps_tables_of_many_ranks_short) {
  std::vector<std::string> words(4000, "a()");
  words[3999] = "b()";
  const Vote result = ask(words);
  EXPECT_EQ(result.culprit, 3999);
  EXPECT_LT(result.table.size(), 400u);
  for (std::size_t i = 0; i < words.size(); ++i) words[i] = std::to_string(i);
  EXPECT_LT(ask(words).table.size(), 1000u);
}

}  // namespace
}  // namespace tutti::engine
