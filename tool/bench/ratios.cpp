#include "tool/bench/ratios.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <limits>
#include <set>
#include <tuple>

#include "bench/protocol.hpp"
#include "core/json.hpp"
#include "tool/bench/arithmetic.hpp"
#include "tool/bench/table.hpp"

namespace tutti::tool {
namespace {

using CellKey = std::tuple<Collective, int, std::size_t>;  // collective, ranks, bytes

// What one run says of one cell.
struct CellOfRun {
  std::map<std::string, const TimedCell*> tutti;               // by memory
  std::map<std::string, std::vector<const TimedCell*>> peers;  // by library
};

using Runs = std::map<int, CellOfRun>;

std::map<CellKey, Runs> arrange(const std::vector<TimedCell>& samples) {
  std::map<CellKey, Runs> cells;
  for (const TimedCell& sample : samples) {
    CellOfRun& cell = cells[{sample.collective, sample.ranks, sample.bytes}][sample.run];
    if (sample.library == "tutti")
      cell.tutti[sample.setting] = &sample;
    else if (sample.wrong == 0 && sample.median_us > 0)
      cell.peers[sample.library].push_back(&sample);
  }
  return cells;
}

const TimedCell* fastest(const std::vector<const TimedCell*>& samples) {
  const TimedCell* best = nullptr;
  for (const TimedCell* sample : samples)
    if (best == nullptr || sample->median_us < best->median_us) best = sample;
  return best;
}

struct Collected {
  std::map<std::string, std::vector<double>> against_default;
  std::map<std::string, std::vector<double>> against_best;
  std::vector<double> against_all;
  std::vector<double> tutti_us;
  std::vector<double> floor_us;
  std::vector<double> best_us;
  std::map<std::string, int> winners;
};

void collect(const TimedCell& own, const CellOfRun& cell, Collected& all) {
  all.tutti_us.push_back(own.median_us);
  if (own.floor_us) all.floor_us.push_back(*own.floor_us);
  const TimedCell* best_of_all = nullptr;
  for (const auto& [peer, samples] : cell.peers) {
    for (const TimedCell* sample : samples)
      if (sample->setting == "default")
        all.against_default[peer].push_back(sample->median_us / own.median_us);
    const TimedCell* best = fastest(samples);
    all.against_best[peer].push_back(best->median_us / own.median_us);
    if (best_of_all == nullptr || best->median_us < best_of_all->median_us) best_of_all = best;
  }
  if (best_of_all == nullptr) return;
  all.against_all.push_back(best_of_all->median_us / own.median_us);
  all.best_us.push_back(best_of_all->median_us);
  ++all.winners[best_of_all->library + ":" + best_of_all->setting];
}

Ratio settle(const CellKey& key, const std::string& memory, const Collected& all) {
  Ratio ratio;
  std::tie(ratio.collective, ratio.ranks, ratio.bytes) = key;
  ratio.memory = memory;
  ratio.tutti_us = bench::median_of(all.tutti_us);
  if (!all.floor_us.empty()) ratio.floor_us = bench::median_of(all.floor_us);
  for (const auto& [peer, values] : all.against_default)
    ratio.against_default[peer] = bench::median_of(values);
  for (const auto& [peer, values] : all.against_best)
    ratio.against_best[peer] = bench::median_of(values);
  ratio.against_all = bench::median_of(all.against_all);
  ratio.best_peer_us = bench::median_of(all.best_us);
  int most = 0;
  for (const auto& [name, times] : all.winners)
    if (times > most) {
      most = times;
      ratio.best_peer = name;
    }
  return ratio;
}

std::set<std::string> peers_in(const std::vector<Ratio>& ratios) {
  std::set<std::string> peers;
  for (const Ratio& ratio : ratios)
    for (const auto& [peer, value] : ratio.against_best) peers.insert(peer);
  return peers;
}

std::string ratio_words(double value) { return value > 0 ? fmt::format("{:.2f}", value) : "-"; }

double value_or_zero(const std::map<std::string, double>& values, const std::string& key) {
  const auto found = values.find(key);
  return found == values.end() ? 0 : found->second;
}

// One line of means over the ratios that `wanted` picks; empty when there are none.
template <class Wanted>
std::string mean_line(const std::vector<Ratio>& ratios, const std::set<std::string>& peers,
                      const std::string& head, Wanted&& wanted) {
  const auto mean = [&](auto&& value) {
    std::vector<double> values;
    for (const Ratio& ratio : ratios)
      if (wanted(ratio)) values.push_back(value(ratio));
    return geometric_mean(values);
  };
  std::string line = head;
  for (const std::string& peer : peers) {
    const double plain =
        mean([&](const Ratio& r) { return value_or_zero(r.against_default, peer); });
    const double best = mean([&](const Ratio& r) { return value_or_zero(r.against_best, peer); });
    line += fmt::format(" | {:>7} {:>7}", ratio_words(plain), ratio_words(best));
  }
  double least = 0;
  for (const Ratio& ratio : ratios)
    if (wanted(ratio) && ratio.against_all > 0 && (least == 0 || ratio.against_all < least))
      least = ratio.against_all;
  const double all = mean([](const Ratio& r) { return r.against_all; });
  return line + fmt::format(" | {:>7} {:>7}\n", ratio_words(all), ratio_words(least));
}

}  // namespace

std::vector<Ratio> ratios_of(const std::vector<TimedCell>& samples) {
  std::vector<Ratio> ratios;
  for (const auto& [key, runs] : arrange(samples)) {
    std::map<std::string, Collected> by_memory;
    for (const auto& [run, cell] : runs)
      for (const auto& [memory, own] : cell.tutti)
        if (own->median_us > 0) collect(*own, cell, by_memory[memory]);
    for (const auto& [memory, all] : by_memory) ratios.push_back(settle(key, memory, all));
  }
  return ratios;
}

std::string wrong_lines(const std::vector<TimedCell>& samples) {
  std::string lines;
  for (const TimedCell& sample : samples)
    if (sample.wrong > 0)
      lines +=
          fmt::format("# WRONG: {} {}, {} ranks, {} of {} B, run {}: {} elements\n", sample.library,
                      sample.setting, sample.ranks, to_string(sample.collective), sample.bytes,
                      sample.run + 1, sample.wrong);
  return lines;
}

std::string means_table(const std::vector<Ratio>& ratios) {
  const std::set<std::string> peers = peers_in(ratios);
  std::string head = fmt::format("{:14} {:9} {:>5}", "#", "", "");
  std::string second = fmt::format("{:14} {:9} {:>5}", "# collective", "memory", "ranks");
  for (const std::string& peer : peers) {
    head += fmt::format(" | {:^15}", peer);
    second += fmt::format(" | {:>7} {:>7}", "default", "best");
  }
  std::string text =
      "# geometric mean over sizes of (peer's time / tutti's time), median over runs\n";
  text += head + fmt::format(" | {:^15}\n", "any peer's best");
  text += second + fmt::format(" | {:>7} {:>7}\n", "mean", "least");
  std::set<std::tuple<Collective, std::string>> groups;
  std::set<int> rank_counts;
  for (const Ratio& ratio : ratios) {
    groups.emplace(ratio.collective, ratio.memory);
    rank_counts.insert(ratio.ranks);
  }
  for (const auto& [collective, memory] : groups) {
    const auto line = [&, c = collective, m = memory](int ranks) {
      text += mean_line(ratios, peers,
                        fmt::format("{:14} {:9} {:>5}", to_string(c), m,
                                    ranks == 0 ? "all" : std::to_string(ranks)),
                        [&](const Ratio& ratio) {
                          return ratio.collective == c && ratio.memory == m &&
                                 (ranks == 0 || ratio.ranks == ranks);
                        });
    };
    for (const int ranks : rank_counts) line(ranks);
    if (rank_counts.size() > 1) line(0);
  }
  return text;
}

namespace {

constexpr const char* kCellLine = "{:14} {:9} {:>5} {:>8} {:>8} {:>8} {:>8} {:>6}  {}\n";

std::string cell_head() {
  return fmt::format(kCellLine, "# collective", "memory", "ranks", "size", "tutti us", "floor us",
                     "peer us", "ratio", "best peer");
}

std::string cell_line(const Ratio& ratio) {
  return fmt::format(kCellLine, to_string(ratio.collective), ratio.memory, ratio.ranks,
                     size_words(ratio.bytes), time_words(ratio.tutti_us),
                     ratio.floor_us ? time_words(*ratio.floor_us) : "-",
                     ratio.best_peer.empty() ? "-" : time_words(ratio.best_peer_us),
                     ratio_words(ratio.against_all), ratio.best_peer);
}

}  // namespace

std::string cells_table(const std::vector<Ratio>& ratios) {
  std::string text = cell_head();
  for (const Ratio& ratio : ratios) text += cell_line(ratio);
  return text;
}

std::string close_table(const std::vector<Ratio>& ratios) {
  std::string text;
  for (const Ratio& ratio : ratios)
    if (ratio.against_all > 0 && ratio.against_all < kClose) text += cell_line(ratio);
  if (text.empty()) return fmt::format("# no cell below {}\n", kClose);
  return fmt::format("# cells below {}\n", kClose) + cell_head() + text;
}

Json samples_json(const std::vector<TimedCell>& samples) {
  Json list = Json::array();
  for (const TimedCell& sample : samples)
    list.push_back({{"run", sample.run},
                    {"ranks", sample.ranks},
                    {"library", sample.library},
                    {"setting", sample.setting},
                    {"collective", to_string(sample.collective)},
                    {"bytes", sample.bytes},
                    {"median_us", sample.median_us},
                    {"wrong", sample.wrong}});
  return list;
}

Json ratios_json(const std::vector<Ratio>& ratios) {
  Json list = Json::array();
  for (const Ratio& ratio : ratios)
    list.push_back({{"collective", to_string(ratio.collective)},
                    {"ranks", ratio.ranks},
                    {"memory", ratio.memory},
                    {"bytes", ratio.bytes},
                    {"tutti_us", ratio.tutti_us},
                    {"floor_us", ratio.floor_us},
                    {"best_peer", ratio.best_peer},
                    {"best_peer_us", ratio.best_peer_us},
                    {"against_default", ratio.against_default},
                    {"against_best", ratio.against_best},
                    {"against_all", ratio.against_all}});
  return list;
}

}  // namespace tutti::tool
