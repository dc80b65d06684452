#include "tool/trace/findings.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <map>

#include "tool/bench/arithmetic.hpp"
#include "tool/trace/words.hpp"
#include "tutti/types.hpp"

namespace tutti::tool::trace {

using tutti::trace::Analysis;
using tutti::trace::Cause;
using tutti::trace::Causes;
using tutti::trace::ExposureRow;
using tutti::trace::kCauses;
using tutti::trace::Named;
using tutti::trace::RankStep;
using tutti::trace::Step;
using tutti::trace::TracedRun;
using tutti::trace::Wait;

namespace {

// Below this share of a step nothing is worth a word.
constexpr double kWorthAWord = 0.01;

double sum_of(const Causes& causes) { return causes[0] + causes[1] + causes[2] + causes[3]; }

std::string percent(double share) {
  return fmt::format("{:.{}f} %", share * 100, share < 0.1 ? 1 : 0);
}

// After "comes from".
const char* words_of(Cause cause) {
  switch (cause) {
    case Cause::straggler: return "late ranks";
    case Cause::queued_behind: return "calls that queued behind others";
    case Cause::slow_link: return "slow transfers";
    case Cause::late_ready: return "buckets that were ready late";
  }
  return "";
}

const char* advice(Cause cause) {
  switch (cause) {
    case Cause::straggler: return "";
    case Cause::queued_behind:
      return "give traffic that must not queue a group of its own (Group::duplicate), or use fewer "
             "and larger buckets, which spend less on each call";
    case Cause::slow_link:
      return "look for cores that ranks share with progress threads, for other jobs, or for a slow "
             "network; if the machine has changed, measure it again with TUTTI_TUNING=measure";
    case Cause::late_ready:
      return "smaller buckets are ready earlier; the last one of a backward pass is always "
             "exposed, so keep it small";
  }
  return "";
}

class Finder {
 public:
  Finder(const TracedRun& run, const Analysis& analysis, const Summary& summary)
      : run_(run), analysis_(analysis), summary_(summary) {}

  std::vector<Finding> find() {
    headline();
    bubble();
    hidden();
    straggler();
    main_cause();
    worst_bucket();
    slow_calls();
    odd_step();
    failures();
    for (const std::string& remark : remarks_on(run_)) add("note", remark + ".");
    return std::move(found_);
  }

 private:
  void add(const char* level, std::string text) { found_.push_back({level, std::move(text)}); }

  void headline() {
    if (summary_.steps == 0) {
      double wait = 0;
      for (const auto& rank : analysis_.ranks) wait += rank.wait_ns;
      wait /= static_cast<double>(std::max<std::size_t>(analysis_.ranks.size(), 1));
      add("note", fmt::format("The run took {:.3f} s and has no steps; a rank was blocked on "
                              "communication for {} of it on average.",
                              seconds_of(run_), time_words(wait)));
      return;
    }
    const double late = summary_.causes[0] / summary_.step_ns;
    const double exposed = summary_.exposed_ns / summary_.step_ns;
    add(late + exposed < 0.05 ? "good" : "warn",
        fmt::format("A step takes {} (slowest rank, mean of steps {} … {}). Of that, {} ({}) is "
                    "spent waiting for ranks that come late, and {} ({}) on communication that "
                    "compute does not hide.",
                    time_words(summary_.step_ns), summary_.first_step, summary_.last_step,
                    time_words(summary_.causes[0]), percent(late), time_words(summary_.exposed_ns),
                    percent(exposed)));
  }

  void bubble() {
    if (summary_.steps == 0 || summary_.bubble_ns <= 0) return;
    add("note",
        fmt::format("{} ({}) of a step is the pipeline's bubble: a rank had nothing to compute, "
                    "because its neighbour had not either. More micro-batches, virtual stages "
                    "or zb-h1 make it smaller (tutti show pipeline).",
                    time_words(summary_.bubble_ns),
                    percent(summary_.bubble_ns / summary_.step_ns)));
  }

  void hidden() {
    if (summary_.overlap < 0) {
      add("note",
          "The trace does not say when ranks computed, so nobody can tell how much communication "
          "was hidden. The training layer records it; other programs mark it with "
          "tutti::trace::Span.");
      return;
    }
    add(summary_.overlap >= 0.5 ? "good" : "note",
        fmt::format("{} of communication was hidden: for that share of the time in which it was "
                    "under way, its rank computed.",
                    percent(summary_.overlap)));
  }

  void straggler() {
    std::map<int, double> cost;
    std::map<int, std::size_t> times;
    double all = 0;
    std::size_t operations = 0;
    for (const Wait& wait : analysis_.waits) {
      cost[analysis_.operations[wait.operation].last_rank] += wait.causes[0];
      all += wait.causes[0];
    }
    for (const auto& operation : analysis_.operations)
      if (operation.seen > 1) {
        ++times[operation.last_rank];
        ++operations;
      }
    if (all <= 0 || operations == 0 || !matters(all)) return;
    const auto worst = std::max_element(
        cost.begin(), cost.end(), [](const auto& a, const auto& b) { return a.second < b.second; });
    const double share = worst->second / all;
    const double fair = 1.0 / static_cast<double>(std::max(run_.size, 1));
    if (share > std::min(0.9, 1.6 * fair))
      add("warn",
          fmt::format(
              "Rank {} holds the others up: {} of the time that ranks wait for each other is spent "
              "waiting for it. It comes last to {} of {} collectives. Look at what it computes, "
              "and at its host{}.",
              worst->first, percent(share), times[worst->first], operations,
              host_of(worst->first)));
    else
      add("note",
          fmt::format(
              "No single rank holds the others up: the time that ranks wait for each other{} is "
              "spread over all of them; rank {} causes most, {}.",
              summary_.steps == 0
                  ? ""
                  : fmt::format(" ({} per rank and step)", time_words(summary_.causes[0])),
              worst->first, percent(share)));
  }

  std::string host_of(int rank) const {
    for (const auto& each : run_.ranks)
      if (each.rank == rank && !each.host.empty()) return fmt::format(" ({})", each.host);
    return "";
  }

  // Whether an amount of all ranks and steps is a share of the steps worth a word.
  bool matters(double ns) const {
    if (summary_.steps == 0) return true;
    const double steps = summary_.step_ns * static_cast<double>(summary_.steps) *
                         static_cast<double>(std::max<std::size_t>(run_.ranks.size(), 1));
    return ns > kWorthAWord * steps;
  }

  void main_cause() {
    Causes all{};
    for (const Wait& wait : analysis_.waits)
      for (std::size_t c = 1; c < kCauses; ++c) all[c] += wait.causes[c];
    const auto worst = std::max_element(all.begin() + 1, all.end());
    if (*worst <= 0 || !matters(sum_of(all))) return;
    const auto cause = static_cast<Cause>(worst - all.begin());
    add("warn", fmt::format("Most communication that is not hidden ({}) comes from {}: {}.",
                            percent(*worst / sum_of(all)), words_of(cause), advice(cause)));
  }

  void worst_bucket() {
    if (analysis_.named.empty()) return;
    const Named& worst = analysis_.named.front();
    if (worst.exposed_ns() <= 0 || !matters(worst.exposed_ns())) return;
    const auto cause = static_cast<Cause>(
        std::max_element(worst.causes.begin() + 1, worst.causes.end()) - worst.causes.begin());
    const double each = worst.exposed_ns() / static_cast<double>(worst.count) /
                        static_cast<double>(std::max<std::size_t>(run_.ranks.size(), 1));
    add("note",
        fmt::format(
            "The call that waits longest is {} ({}): {} each time on each rank, mostly because of {}.",
            worst.name, size_words(worst.bytes), time_words(each), words_of(cause)));
  }

  void slow_calls() {
    for (const ExposureRow& row : analysis_.rows) {
      if (row.predicted_ns <= 0 || row.count < 3 || row.median_ns < 2 * row.predicted_ns ||
          !matters(row.total_ns * row.ranks))
        continue;
      const double ratio = row.median_ns / row.predicted_ns;
      add("note",
          fmt::format("{} of {} on group '{}' ({}) took {}, {:.{}f} times the predicted {}.",
                      to_string(static_cast<Collective>(row.collective)), size_words(row.bytes),
                      row.group, to_string(static_cast<Algorithm>(row.algorithm)),
                      time_words(row.median_ns), ratio, ratio < 10 ? 1 : 0,
                      time_words(row.predicted_ns)));
      return;
    }
  }

  void odd_step() {
    std::vector<std::pair<double, std::int64_t>> lengths;
    for (const Step* step : counted_steps(analysis_))
      for (const RankStep& rank : step->ranks)
        lengths.emplace_back(static_cast<double>(rank.end - rank.begin), step->number);
    if (lengths.size() < 8) return;
    std::sort(lengths.begin(), lengths.end());
    const double median = lengths[lengths.size() / 2].first;
    if (lengths.back().first < 1.5 * median) return;
    add("note", fmt::format("Step {} took {}, {:.1f} times the median.", lengths.back().second,
                            time_words(lengths.back().first), lengths.back().first / median));
  }

  void failures() {
    for (const auto& operation : analysis_.operations) {
      if (!operation.failed) continue;
      add("warn", fmt::format("The run failed in {} #{} on group '{}'; `tutti trace hang` says "
                              "which rank went wrong first.",
                              to_string(static_cast<Collective>(operation.collective)),
                              operation.sequence, operation.group));
      return;
    }
  }

  const TracedRun& run_;
  const Analysis& analysis_;
  const Summary& summary_;
  std::vector<Finding> found_;
};

}  // namespace

std::vector<const Step*> counted_steps(const Analysis& analysis) {
  std::vector<const Step*> steps;
  for (const Step& step : analysis.steps)
    if (analysis.steps.size() <= 2 || &step != &analysis.steps.front()) steps.push_back(&step);
  return steps;
}

Summary summarise(const Analysis& analysis) {
  Summary summary;
  double ranks = 0, overlapped = 0, communication = 0;
  bool has_compute = false;
  for (const auto& rank : analysis.ranks) has_compute |= rank.has_compute;
  for (const Step* step : counted_steps(analysis)) {
    double longest = 0;
    for (const RankStep& rank : step->ranks) {
      longest = std::max(longest, static_cast<double>(rank.end - rank.begin));
      summary.compute_ns += rank.compute_ns;
      summary.wait_ns += rank.wait_ns;
      summary.bubble_ns += rank.bubble_ns;
      summary.exposed_ns += rank.exposed_ns();
      overlapped += rank.overlapped_ns;
      communication += rank.communication_ns;
      for (std::size_t c = 0; c < kCauses; ++c) summary.causes[c] += rank.causes[c];
      ++ranks;
    }
    if (summary.steps++ == 0) summary.first_step = step->number;
    summary.last_step = step->number;
    summary.step_ns += longest;
  }
  if (ranks > 0) {
    summary.step_ns /= static_cast<double>(summary.steps);
    for (double* field :
         {&summary.compute_ns, &summary.wait_ns, &summary.bubble_ns, &summary.exposed_ns})
      *field /= ranks;
    for (double& cause : summary.causes) cause /= ranks;
    summary.communication_ns = communication / ranks;
  } else {
    for (const auto& rank : analysis.ranks) {
      overlapped += rank.overlapped_ns;
      communication += rank.communication_ns;
    }
  }
  if (has_compute && communication > 0) summary.overlap = overlapped / communication;
  return summary;
}

std::vector<Finding> find_findings(const TracedRun& run, const Analysis& analysis,
                                   const Summary& summary) {
  return Finder(run, analysis, summary).find();
}

}  // namespace tutti::tool::trace
