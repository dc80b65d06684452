// tutti plan validate - holds predictions of a measured cluster against this machine, in cells that
// calibration did not see.
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cmath>
#include <map>
#include <memory>
#include <numeric>
#include <set>
#include <tuple>

#include "bench/protocol.hpp"
#include "core/clock.hpp"
#include "core/json.hpp"
#include "plan/collective_cost.hpp"
#include "plan/units.hpp"
#include "tool/interruption.hpp"
#include "tool/numbers.hpp"
#include "tool/plan/measure.hpp"
#include "tool/plan/plan.hpp"
#include "tool/plan/read_cluster.hpp"
#include "tutti/shape.hpp"

namespace tutti::tool::plan {
namespace {

namespace planner = tutti::plan;
constexpr const char* kValidateCommand = "plan validate";
constexpr const char* kValidateFooter = R"(Examples:
  tutti plan validate -n 4 --cluster here.json
  tutti plan validate --hosts a:2,b:2 --cluster ours.json
  tutti plan validate -n 4 --cluster here.json --time 120 --summary
  tutti plan validate -n 4 --cluster here.json --json > errors.json

Sizes lie between those that calibration measured, and numbers of ranks are others too. Regret: how much
longer the algorithm takes that was predicted to be the fastest than the one that is.
Aims: median error 10 %, 95th percentile 25 %, regret 5 % in 95 % of the choices.
)";

constexpr double kMedianAim = 0.10;
constexpr double kHighAim = 0.25;
constexpr double kRegretAim = 0.05;
constexpr double kShare = 0.95;

struct ValidateOptions {
  WhereWords where;
  std::string cluster;
  std::string time = "60";
  bool summary = false;
  bool json = false;
};

struct Judged {
  MeasuredCell cell;
  double predicted = 0;
  double error() const { return predicted / cell.seconds - 1; }
};

struct Regret {
  Collective collective;
  int ranks;
  std::size_t bytes;
  Algorithm chosen;
  Algorithm fastest;
  double regret;
};

struct Verdict {
  double median = 0;
  double high = 0;
  double regret_share = 0;  // of choices within the aim
  double worst_regret = 0;
  double spread = 0;  // between the two fastest visits to a cell, its median
  double visits = 0;
  bool reached() const {
    return median <= kMedianAim && high <= kHighAim && regret_share >= kShare;
  }
};

// Half way, in logarithms, between sizes that were corrected.
std::vector<std::size_t> held_out_sizes(const planner::Cluster& cluster) {
  std::set<double> known;
  for (const auto& correction : cluster.corrections)
    if (correction.collective == Collective::broadcast)
      for (const auto& point : correction.points) known.insert(point.bytes);
  if (known.size() < 2) known = {64, 512, 4096, 32768, 262144, 2097152};
  std::vector<std::size_t> sizes;
  for (auto at = known.begin(); std::next(at) != known.end(); ++at) {
    const double middle = std::sqrt(*at * *std::next(at));
    sizes.push_back(static_cast<std::size_t>(std::llround(middle / 48)) * 48);
  }
  return sizes;
}

// Of those that calibration measured, and others.
std::set<int> judged_counts(int ranks) {
  std::set<int> counts;
  for (const int n : {2, 3, ranks * 3 / 4, ranks})
    if (n >= 2 && n <= ranks) counts.insert(n);
  return counts;
}

// Likewise: inside of one host, and on whole hosts.
std::set<int> judged_counts(const Where& where) {
  if (!where.spans_hosts()) return judged_counts(where.ranks);
  std::set<int> counts;
  if (where.per_host() > 1) counts.insert(where.per_host());
  for (const int hosts : judged_counts(static_cast<int>(where.hosts.size())))
    counts.insert(hosts * where.per_host());
  return counts;
}

Result<std::vector<Judged>> judge(const planner::Cluster& cluster, const Where& where,
                                  double seconds) {
  const std::string table = tuner::to_json(*cluster.machine);
  const auto counts = judged_counts(where);
  // More ranks take longer, and are disturbed more.
  const double ranks_in_all = std::accumulate(counts.begin(), counts.end(), 0.0);
  const double left = seconds - kJobSeconds * static_cast<double>(counts.size());
  std::vector<Judged> judged;
  for (const int n : counts) {
    auto cells = cells_for(where, n, held_out_sizes(cluster));
    // A barrier has no sizes: the one there is was measured.
    std::erase_if(cells,
                  [](const MeasuredCell& cell) { return !shape_of(cell.collective).has_data(); });
    const MeasureJob job{where,
                         n,
                         left * n / ranks_in_all,
                         table,
                         where.spans_hosts() ? "" : "shm",
                         fmt::format("{} ranks", n)};
    if (Status status = measure_cells(job, cells); !status.ok()) return status;
    for (const MeasuredCell& cell : cells) {
      const auto predicted =
          planner::cost_of(cluster, cell.collective, cell.algorithm, {.ranks = cell.ranks},
                           static_cast<double>(cell.bytes));
      if (predicted && cell.seconds > 0) judged.push_back({cell, predicted->seconds});
    }
  }
  if (judged.empty()) return Status(Code::aborted, "nothing was measured in the time there was");
  return judged;
}

std::vector<Regret> regrets_of(const std::vector<Judged>& judged) {
  std::map<std::tuple<Collective, int, std::size_t>, std::pair<const Judged*, const Judged*>> best;
  for (const Judged& row : judged) {
    auto& [chosen, fastest] = best[{row.cell.collective, row.cell.ranks, row.cell.bytes}];
    if (chosen == nullptr || row.predicted < chosen->predicted) chosen = &row;
    if (fastest == nullptr || row.cell.seconds < fastest->cell.seconds) fastest = &row;
  }
  std::vector<Regret> regrets;
  for (const auto& [key, pair] : best)
    regrets.push_back({std::get<0>(key), std::get<1>(key), std::get<2>(key),
                       pair.first->cell.algorithm, pair.second->cell.algorithm,
                       pair.first->cell.seconds / pair.second->cell.seconds - 1});
  return regrets;
}

Verdict verdict_of(const std::vector<Judged>& judged, const std::vector<Regret>& regrets) {
  Verdict verdict;
  std::vector<double> errors;
  std::vector<double> spreads;
  for (const Judged& row : judged) {
    errors.push_back(std::abs(row.error()));
    if (row.cell.visits > 1) spreads.push_back(row.cell.spread);
    verdict.visits += row.cell.visits / static_cast<double>(judged.size());
  }
  verdict.spread = bench::median_of(spreads);
  verdict.median = bench::median_of(errors);
  verdict.high = bench::quantile_of(errors, 0.95);
  double within = 0;
  for (const Regret& each : regrets) {
    within += each.regret <= kRegretAim ? 1 : 0;
    verdict.worst_regret = std::max(verdict.worst_regret, each.regret);
  }
  verdict.regret_share = within / static_cast<double>(regrets.size());
  return verdict;
}

void print_cells(const std::vector<Judged>& judged) {
  using planner::short_text;
  using planner::Unit;
  fmt::print("{:<14} {:<18}{:>6}{:>10}{:>11}{:>11}{:>9}\n", "collective", "algorithm", "ranks",
             "bytes", "predicted", "measured", "error");
  for (const Judged& row : judged)
    fmt::print("{:<14} {:<18}{:>6}{:>10}{:>11}{:>11}{:>7.1f} %\n", to_string(row.cell.collective),
               to_string(row.cell.algorithm), row.cell.ranks, row.cell.bytes,
               short_text(row.predicted, Unit::seconds),
               short_text(row.cell.seconds, Unit::seconds), 100 * row.error());
  fmt::print("\n");
}

void print_collectives(const std::vector<Judged>& judged) {
  std::map<std::pair<Collective, int>, std::vector<double>> errors;
  for (const Judged& row : judged)
    errors[{row.cell.collective, row.cell.ranks}].push_back(std::abs(row.error()));
  fmt::print("{:<15}{:>6}{:>8}{:>14}{:>10}\n", "collective", "ranks", "cells", "median error",
             "95 %");
  for (const auto& [key, list] : errors)
    fmt::print("{:<15}{:>6}{:>8}{:>12.1f} %{:>8.1f} %\n", to_string(key.first), key.second,
               list.size(), 100 * bench::median_of(list), 100 * bench::quantile_of(list, 0.95));
  fmt::print("\n");
}

void print_verdict(const Verdict& verdict, std::size_t cells, const std::vector<Regret>& regrets) {
  fmt::print(
      "{} cells: median error {:.1f} % (aim {:.0f}), 95th percentile {:.1f} % (aim {:.0f})\n",
      cells, 100 * verdict.median, 100 * kMedianAim, 100 * verdict.high, 100 * kHighAim);
  fmt::print(
      "{} choices: {:.1f} % within {:.0f} % of the fastest (aim {:.0f}), worst {:.0f} % slower\n",
      regrets.size(), 100 * verdict.regret_share, 100 * kRegretAim, 100 * kShare,
      100 * verdict.worst_regret);
  fmt::print("{:.1f} visits to a cell, of which the two fastest differ by {:.1f} % (median)\n",
             verdict.visits, 100 * verdict.spread);
  fmt::print("{}\n", verdict.reached()
                         ? "all aims reached"
                         : "aims missed: a busy machine, or one that has changed since "
                           "it was calibrated, is the usual reason");
}

Json to_json(const std::vector<Judged>& judged, const std::vector<Regret>& regrets,
             const Verdict& verdict) {
  Json document = {{"median_error", verdict.median},
                   {"p95_error", verdict.high},
                   {"choices_within_5_percent", verdict.regret_share},
                   {"worst_regret", verdict.worst_regret},
                   {"visits", verdict.visits},
                   {"spread_of_visits", verdict.spread},
                   {"reached", verdict.reached()},
                   {"cells", Json::array()},
                   {"choices", Json::array()}};
  for (const Judged& row : judged)
    document["cells"].push_back({{"collective", to_string(row.cell.collective)},
                                 {"algorithm", to_string(row.cell.algorithm)},
                                 {"ranks", row.cell.ranks},
                                 {"bytes", row.cell.bytes},
                                 {"predicted_s", row.predicted},
                                 {"measured_s", row.cell.seconds},
                                 {"visits", row.cell.visits},
                                 {"error", row.error()}});
  for (const Regret& each : regrets)
    document["choices"].push_back({{"collective", to_string(each.collective)},
                                   {"ranks", each.ranks},
                                   {"bytes", each.bytes},
                                   {"chosen", to_string(each.chosen)},
                                   {"fastest", to_string(each.fastest)},
                                   {"regret", each.regret}});
  return document;
}

int answer(const ValidateOptions& options) {
  const auto where = understand(options.where);
  if (!where.ok()) return complain(kValidateCommand, where.status());
  const auto cluster = read_cluster(options.cluster);
  if (!cluster.ok()) return complain(kValidateCommand, cluster.status());
  if (!cluster->machine)
    return complain(
        kValidateCommand,
        fmt::format("--cluster {} was not measured: tutti plan calibrate -n {} -o here.json",
                    options.cluster, std::max(2, where->ranks)),
        kBadInput);
  if (where->per_host() > cluster->ranks_per_host ||
      (where->spans_hosts() && where->per_host() != cluster->ranks_per_host))
    return complain(kValidateCommand,
                    where->hosts.empty()
                        ? fmt::format("-n {} lies outside 2 … {}, which {} was measured with",
                                      where->ranks, cluster->ranks_per_host, options.cluster)
                        : fmt::format("--hosts {}: {} ranks on a host, and {} was measured with {}",
                                      options.where.hosts, where->per_host(), options.cluster,
                                      cluster->ranks_per_host),
                    kBadInput);
  const auto time =
      read_duration("--time", options.time, std::chrono::seconds(4), std::chrono::hours(1));
  if (!time.ok()) return complain(kValidateCommand, time.status());
  const double seconds = in_seconds(*time);
  catch_interruptions();
  const auto judged = judge(*cluster, *where, seconds);
  if (interruption() != 0)
    return complain(kValidateCommand, "interrupted; nothing was judged", 128 + interruption());
  if (!judged.ok()) return complain(kValidateCommand, judged.status().message(), kFailed);
  const auto regrets = regrets_of(*judged);
  const Verdict verdict = verdict_of(*judged, regrets);
  if (options.json) {
    fmt::print("{}\n", to_json(*judged, regrets, verdict).dump(1));
    return kDone;
  }
  if (!options.summary) print_cells(*judged);
  print_collectives(*judged);
  print_verdict(verdict, judged->size(), regrets);
  return kDone;
}

}  // namespace

Command make_validate(CLI::App& plan) {
  auto options = std::make_shared<ValidateOptions>();
  CLI::App* parser = plan.add_subcommand("validate", "hold predictions against this machine");
  add_where(*parser, options->where);
  parser->add_option("--cluster", options->cluster, "what tutti plan calibrate wrote")->required();
  parser->add_option("--time", options->time, "at most this long")->capture_default_str();
  parser->add_flag("--summary", options->summary, "without the table of cells");
  parser->add_flag("--json", options->json, "as JSON (docs/formats/plan_collective.md)");
  parser->footer(kValidateFooter);
  return {parser, [options] { return answer(*options); }};
}

}  // namespace tutti::tool::plan
