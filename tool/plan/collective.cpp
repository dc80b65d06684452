// tutti plan collective - every algorithm of a collective on a described cluster, and the choice.
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <memory>

#include "core/json.hpp"
#include "core/words.hpp"
#include "plan/collective_cost.hpp"
#include "plan/simulate.hpp"
#include "plan/units.hpp"
#include "schedule/catalog.hpp"
#include "tool/bench/arithmetic.hpp"
#include "tool/numbers.hpp"
#include "tool/plan/plan.hpp"
#include "tool/plan/read_cluster.hpp"
#include "tutti/shape.hpp"

namespace tutti::tool::plan {
namespace {

namespace planner = tutti::plan;
using planner::CollectiveCost;
using planner::Unit;

constexpr const char* kCollectiveCommand = "plan collective";
constexpr const char* kCollectiveFooter = R"(Examples:
  tutti plan collective all_reduce --ranks 24576 --bytes 8 --cluster summit
  tutti plan collective all_reduce --ranks 512 --bytes 64M --cluster h100-ib400 --simulate
  tutti plan collective reduce_scatter --ranks 64 --stride 8 --bytes 1G --cluster here.json --json
  tutti plan collective all_reduce --ranks 4 --bytes 16M --cluster gpu-ethernet-100g --algorithm in_network

Bytes are those of the whole array; K, M, G are powers of 1024. Steps are messages one after another.
--simulate runs each schedule itself in virtual time (docs/algorithms/simulator.md).
)";

constexpr double kLargestCrossover = 1e12;
constexpr int kManyRanks = 10000;
constexpr int kMostPlanned = 1 << 24;

struct CollectiveOptions {
  std::string collective;
  std::string bytes = "1M";
  std::string cluster = "h100-ib400";
  std::string order = "any";
  std::string algorithm;  // empty: every one
  int ranks = 0;
  int stride = 1;
  bool simulate = false;
  bool json = false;
};

struct Question {
  planner::Cluster cluster;
  Collective collective = Collective::all_reduce;
  ReductionOrder order = ReductionOrder::any;
  Algorithm algorithm = Algorithm::automatic;  // every one
  planner::GroupSeats members;
  double bytes = 0;
};

struct Row {
  CollectiveCost cost;
  std::optional<planner::Simulated> simulated;
  std::string complaint;  // why it was not simulated

  double seconds() const { return simulated ? simulated->seconds : cost.seconds; }
};

Status read_algorithm(const std::string& word, Algorithm& algorithm) {
  if (word.empty()) return {};
  const auto named = parse_algorithm(word);
  if (named && *named != Algorithm::automatic && *named != Algorithm::custom) {
    algorithm = *named;
    return {};
  }
  std::vector<std::string_view> words;
  for (int i = 0; i < kAlgorithms; ++i)
    if (const auto each = static_cast<Algorithm>(i);
        each != Algorithm::automatic && each != Algorithm::custom)
      words.push_back(to_string(each));
  return {Code::invalid_argument, unknown_word("--algorithm", word, words)};
}

Result<Question> understand(const CollectiveOptions& options) {
  Question question;
  const auto collective = parse_collective(options.collective);
  if (!collective) {
    std::vector<std::string_view> words;
    for (int i = 0; i < kCollectives; ++i) words.push_back(to_string(static_cast<Collective>(i)));
    return Status(Code::invalid_argument, unknown_word("collective", options.collective, words));
  }
  const auto order = parse_reduction_order(options.order);
  if (!order)
    return Status(Code::invalid_argument,
                  unknown_word("--order", options.order,
                               std::array<std::string_view, 3>{"any", "rank", "tree"}));
  auto cluster = read_cluster(options.cluster);
  if (!cluster.ok()) return cluster.status();
  const auto bytes = read_size("--bytes", options.bytes);
  if (!bytes.ok()) return bytes.status();
  question.cluster = *std::move(cluster);
  question.collective = *collective;
  question.order = *order;
  if (Status status = read_algorithm(options.algorithm, question.algorithm); !status.ok())
    return status;
  question.bytes = shape_of(*collective).has_data() ? static_cast<double>(*bytes) : 0;
  const int ranks = options.ranks != 0 ? options.ranks : 2 * question.cluster.ranks_per_host;
  question.members = {ranks, options.stride};
  const double last = static_cast<double>(ranks) * options.stride;
  const int most = question.cluster.max_ranks;
  if (most > 0 && last - options.stride + 1 > most)
    return Status(Code::invalid_argument,
                  fmt::format("--ranks {}{} does not fit cluster '{}', which has {} ranks", ranks,
                              options.stride > 1 ? fmt::format(" --stride {}", options.stride) : "",
                              question.cluster.name, most));
  if (last > kMostPlanned)
    return Status(Code::invalid_argument,
                  fmt::format("--ranks {} is more than can be planned", ranks));
  return question;
}

void simulate_row(const Question& question, Row& row) {
  const bool two_forms =
      row.cost.algorithm == Algorithm::direct && question.collective == Collective::all_reduce;
  for (int shots = 2; shots >= (two_forms ? 1 : 2); --shots) {
    planner::CollectiveJob job;
    job.collective = question.collective;
    job.algorithm = row.cost.algorithm;
    job.ranks = question.members.ranks;
    job.stride = question.members.stride;
    job.bytes = question.bytes;
    job.shots = shots;
    job.order = question.order;
    const auto answer = planner::simulate(question.cluster, {job});
    if (!answer.ok()) {
      row.complaint = answer.status().message();
    } else if (!row.simulated || answer->front().seconds < row.simulated->seconds) {
      row.simulated = answer->front();
    }
  }
}

// Of all algorithms, or of the one that was named, also where nobody would choose it.
std::vector<CollectiveCost> costs_of(const Question& question) {
  const auto& [cluster, collective, order, algorithm, members, bytes] = question;
  if (algorithm == Algorithm::automatic)
    return planner::costs(cluster, collective, members, bytes, order);
  const auto made = planner::AlgorithmCost::of(cluster, collective, algorithm, members, order);
  return made ? std::vector{made->with(bytes)} : std::vector<CollectiveCost>();
}

// By rising time.
std::vector<Row> rows_for(const Question& question, bool simulate) {
  std::vector<Row> rows;
  for (const CollectiveCost& cost : costs_of(question)) {
    rows.push_back({cost, std::nullopt, {}});
    if (simulate) simulate_row(question, rows.back());
  }
  std::stable_sort(rows.begin(), rows.end(),
                   [](const Row& a, const Row& b) { return a.seconds() < b.seconds(); });
  return rows;
}

// ---- ring against trees

struct Contest {
  double ratio = 0;                 // ring / tree at these bytes
  std::optional<double> crossover;  // bytes from which the ring is cheaper
  Algorithm tree = Algorithm::double_binary_tree;
};

std::optional<Contest> ring_against_trees(const Question& question, const std::vector<Row>& rows) {
  const auto at = [&](Algorithm algorithm) {
    return std::find_if(rows.begin(), rows.end(),
                        [&](const Row& row) { return row.cost.algorithm == algorithm; });
  };
  Contest contest;
  auto tree = at(Algorithm::double_binary_tree);
  if (tree == rows.end()) tree = at(Algorithm::binomial_tree);
  const auto ring = at(Algorithm::ring);
  if (ring == rows.end() || tree == rows.end() || tree->seconds() <= 0) return std::nullopt;
  contest.tree = tree->cost.algorithm;
  contest.ratio = ring->seconds() / tree->seconds();
  if (question.bytes == 0) return contest;
  const auto cost_of = [&](Algorithm algorithm) {
    return planner::AlgorithmCost::of(question.cluster, question.collective, algorithm,
                                      question.members, question.order);
  };
  const auto ring_cost = cost_of(Algorithm::ring);
  const auto tree_cost = cost_of(contest.tree);
  const auto ring_wins = [&](double bytes) {
    return ring_cost->with(bytes).seconds < tree_cost->with(bytes).seconds;
  };
  if (ring_wins(1) || !ring_wins(kLargestCrossover)) return contest;
  double below = 1;
  double above = kLargestCrossover;
  while (above / below > 1.01)
    (ring_wins(std::sqrt(below * above)) ? above : below) = std::sqrt(below * above);
  contest.crossover = above;
  return contest;
}

// ---- what no algorithm beats

struct Bound {
  double seconds = 0;
  bool is_prediction = false;
};

// A time that comes of measured cells refutes a bound that lies above it: copies and meetings were
// measured at another moment, on a machine that others use too.
Bound bound_of(const Question& question, const std::vector<Row>& rows) {
  planner::Cluster cluster = question.cluster;
  if (question.algorithm == Algorithm::in_network) cluster.in_network_reduction = true;
  const double bound =
      planner::lower_bound(cluster, question.collective, question.members, question.bytes);
  double fastest = bound;
  for (const Row& row : rows) fastest = std::min(fastest, row.seconds());
  if (!question.cluster.machine || fastest >= bound) return {bound, false};
  return {fastest, true};
}

// ---- telling it

std::string share_text(double bound, double seconds) {
  if (seconds <= 0) return "-";
  const double share = 100 * bound / seconds;
  return share < 0.1 ? "< 0.1 %" : fmt::format("{:.1f} %", share);
}

// Whole bytes below a kilobyte, else three digits.
std::string bytes_text(double bytes) {
  return bytes < 1000 ? fmt::format("{:.4g} B", bytes) : planner::short_text(bytes, Unit::bytes);
}

void print_table(const Question& question, const std::vector<Row>& rows, const Bound& bound,
                 bool simulated) {
  const int hosts = question.members.hosts(question.cluster);
  fmt::print("{}{}, {} on {} ranks of '{}' ({} host{} with {} each){}\n",
             to_string(question.collective),
             question.order == ReductionOrder::any
                 ? ""
                 : fmt::format(" in {} order", to_string(question.order)),
             bytes_text(question.bytes), question.members.ranks, question.cluster.name, hosts,
             hosts == 1 ? "" : "s", question.members.per_host(question.cluster),
             question.cluster.machine ? ", as measured here" : "");
  fmt::print("lower bound {}{}\n\n", planner::short_text(bound.seconds, Unit::seconds),
             bound.is_prediction ? ", the fastest that is predicted" : "");
  fmt::print("  {:<20}{:>12}{}{:>8}{:>14}{:>10}{:>14}\n", "algorithm", "predicted",
             simulated ? fmt::format("{:>12}", "simulated") : "", "steps", "bytes/rank", "of bound",
             "bus bandwidth");
  for (const Row& row : rows) {
    const std::string time =
        !simulated
            ? ""
            : fmt::format("{:>12}", row.simulated
                                        ? planner::short_text(row.simulated->seconds, Unit::seconds)
                                        : "-");
    fmt::print("{} {:<20}{:>12}{}{:>8}{:>14}{:>10}{:>14}\n", &row == rows.data() ? '*' : ' ',
               to_string(row.cost.algorithm), planner::short_text(row.cost.seconds, Unit::seconds),
               time, row.cost.steps, bytes_text(row.cost.bytes_per_rank),
               share_text(bound.seconds, row.seconds()),
               planner::short_text(row.cost.bus_bandwidth, Unit::bytes_per_s));
  }
  for (const Row& row : rows)
    if (!row.complaint.empty() && !row.simulated)
      fmt::print("  {} was not simulated: {}\n", to_string(row.cost.algorithm), row.complaint);
}

void print_contest(const Contest& contest, bool is_large) {
  const bool tree_wins = contest.ratio >= 1;
  const double times = tree_wins ? contest.ratio : 1 / contest.ratio;
  fmt::print("ring against {}: {} is {:.{}f} times faster here", to_string(contest.tree),
             tree_wins ? "the tree" : "the ring", times, times < 10 ? 1 : 0);
  if (contest.crossover)
    fmt::print("; the ring wins from about {} on", bytes_text(*contest.crossover));
  fmt::print(".\n");
  if (is_large) fmt::print("NCCL reported about 180 times, for small messages on 24,576 GPUs.\n");
}

Json to_json(const Question& question, const std::vector<Row>& rows, const Bound& bound,
             const std::optional<Contest>& contest) {
  Json document = {{"collective", to_string(question.collective)},
                   {"cluster", question.cluster.name},
                   {"ranks", question.members.ranks},
                   {"stride", question.members.stride},
                   {"hosts", question.members.hosts(question.cluster)},
                   {"bytes", question.bytes},
                   {"order", to_string(question.order)},
                   {"lower_bound_s", bound.seconds},
                   {"choice", to_string(rows.front().cost.algorithm)},
                   {"algorithms", Json::array()}};
  for (const Row& row : rows) {
    Json line = {{"algorithm", to_string(row.cost.algorithm)},
                 {"predicted_s", row.cost.seconds},
                 {"steps", row.cost.steps},
                 {"bytes_per_rank", row.cost.bytes_per_rank},
                 {"share_of_bound", row.seconds() > 0 ? bound.seconds / row.seconds() : 0},
                 {"bus_bandwidth_bytes_s", row.cost.bus_bandwidth}};
    if (row.simulated)
      line["simulated"] = {{"seconds", row.simulated->seconds},
                           {"steps", row.simulated->steps},
                           {"bytes_per_rank", row.simulated->bytes_per_rank},
                           {"messages", row.simulated->messages},
                           {"simulated_ranks", row.simulated->simulated_ranks}};
    else if (!row.complaint.empty())
      line["not_simulated"] = row.complaint;
    document["algorithms"].push_back(std::move(line));
  }
  if (contest) {
    document["ring_over_tree"] = contest->ratio;
    if (contest->crossover) document["ring_wins_from_bytes"] = *contest->crossover;
  }
  return document;
}

int no_row(const Question& question) {
  if (question.algorithm == Algorithm::automatic)
    return complain(kCollectiveCommand, "no algorithm exists for this", kFailed);
  return complain(kCollectiveCommand,
                  fmt::format("--algorithm {}: it does not serve {} of these ranks on cluster '{}'",
                              to_string(question.algorithm), to_string(question.collective),
                              question.cluster.name),
                  kBadInput);
}

int answer(const CollectiveOptions& options) {
  const auto question = understand(options);
  if (!question.ok()) return complain(kCollectiveCommand, question.status());
  const std::vector<Row> rows = rows_for(*question, options.simulate);
  if (rows.empty()) return no_row(*question);
  const Bound bound = bound_of(*question, rows);
  const auto contest = ring_against_trees(*question, rows);
  if (options.json) {
    fmt::print("{}\n", to_json(*question, rows, bound, contest).dump(1));
    return kDone;
  }
  print_table(*question, rows, bound, options.simulate);
  fmt::print("\nchoice: {}, {}.\n", to_string(rows.front().cost.algorithm),
             planner::short_text(rows.front().seconds(), Unit::seconds));
  if (contest)
    print_contest(*contest, question->collective == Collective::all_reduce &&
                                question->members.ranks >= kManyRanks);
  return kDone;
}

}  // namespace

Command make_collective(CLI::App& plan) {
  auto options = std::make_shared<CollectiveOptions>();
  CLI::App* parser = plan.add_subcommand(
      "collective", "every algorithm of a collective on a cluster, and the choice");
  parser->add_option("collective", options->collective, "all_reduce, broadcast, …")->required();
  parser->add_option("-n,--ranks", options->ranks, "ranks of the group (default: two hosts)")
      ->check(between(2, kMostPlanned));  // one alone has nobody to talk to
  parser
      ->add_option("--stride", options->stride, "ranks of the cluster from one member to the next")
      ->check(between(1, kMostPlanned))
      ->capture_default_str();
  parser->add_option("-b,--bytes", options->bytes, "of the whole array: 8, 64K, 1M, 2G")
      ->capture_default_str();
  parser
      ->add_option("--cluster", options->cluster,
                   "a preset's name, or a file (docs/formats/cluster.md)")
      ->capture_default_str();
  parser
      ->add_option(
          "--order", options->order,
          "in which contributions are folded: any, rank or tree; of types that are folded in "
          "themselves")
      ->capture_default_str();
  parser->add_option("--algorithm", options->algorithm,
                     "this one alone; in_network: by switches, or one that all reach");
  parser->add_flag("--simulate", options->simulate, "run every schedule in virtual time");
  parser->add_flag("--json", options->json, "as JSON (docs/formats/plan_collective.md)");
  parser->footer(kCollectiveFooter);
  return {parser, [options] { return answer(*options); }};
}

}  // namespace tutti::tool::plan
