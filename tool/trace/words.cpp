#include "tool/trace/words.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

namespace tutti::tool::trace {

double seconds_of(const tutti::trace::TracedRun& run) {
  return static_cast<double>(run.end_ns - run.begin_ns) * 1e-9;
}

std::string rank_words(const std::vector<int>& ranks) {
  std::string text = ranks.size() == 1 ? "rank " : "ranks ";
  for (std::size_t i = 0; i < ranks.size(); ++i) {
    if (i > 0) text += i + 1 == ranks.size() ? " and " : ", ";
    if (i == 8 && ranks.size() > 10) return text + fmt::format("{} others", ranks.size() - 8);
    text += fmt::format("{}", ranks[i]);
  }
  return text;
}

std::string time_words(double ns) {
  const double size = std::abs(ns);
  if (size >= 1e9) return fmt::format("{:.2f} s", ns / 1e9);
  if (size >= 1e6) return fmt::format("{:.2f} ms", ns / 1e6);
  if (size >= 1e3) return fmt::format("{:.1f} µs", ns / 1e3);
  return fmt::format("{:.0f} ns", ns);
}

std::vector<std::string> remarks_on(const tutti::trace::TracedRun& run) {
  std::vector<std::string> remarks;
  if (!run.missing.empty())
    remarks.push_back(
        fmt::format("{} of {} left no trace here", rank_words(run.missing), run.size));
  std::vector<int> cut;
  for (const auto& rank : run.ranks)
    if (rank.cut_off) cut.push_back(rank.rank);
  if (!cut.empty())
    remarks.push_back(
        fmt::format("the trace of {} ends early: killed, or still running", rank_words(cut)));
  std::vector<int> unbounded;
  std::int64_t worst = 0;
  for (std::size_t i = 0; i < run.ranks.size(); ++i) {
    if (run.alignments[i].uncertainty_ns < 0) unbounded.push_back(run.ranks[i].rank);
    worst = std::max(worst, run.alignments[i].uncertainty_ns);
  }
  if (!unbounded.empty())
    remarks.push_back(
        fmt::format("the clock of {} is set by the wall clock alone: no collective "
                    "with the first rank bounds it",
                    rank_words(unbounded)));
  if (worst > 0)
    remarks.push_back(fmt::format("clocks of several hosts agree to ± {}",
                                  time_words(static_cast<double>(worst))));
  return remarks;
}

}  // namespace tutti::tool::trace
