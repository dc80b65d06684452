// engine/vote.hpp - ranks that should have said the same: who of them is wrong, and a table of it.
//
// What most of them say is right; of two opinions with as many ranks behind them, the one that the
// lower rank holds. The culprit is the lowest rank that says something else: the same on every rank
// that knows the same, whoever found out first.
#pragma once

#include <functional>
#include <string>
#include <vector>

namespace tutti::engine {

// What one rank said, in words that are equal where two ranks agree.
struct Said {
  int rank = 0;
  std::string words;
};

struct Vote {
  int culprit = -1;   // -1: all say the same
  bool tied = false;  // as many say something else
  std::string table;  // "ranks 0, 2 called a(), rank 1 (host b, pid 7) called b()"
};

// `said` by ascending rank; `where` is asked for a rank that stands alone.
Vote vote(const std::vector<Said>& said, const std::function<std::string(int rank)>& where);

}  // namespace tutti::engine
