#include "tool/show/predictions.hpp"

#include <cmath>
#include <numeric>

#include "core/json.hpp"
#include "tuner/choose.hpp"

namespace tutti::tool {
namespace {

// Where β and γ are read off their curves: large enough that nothing else counts.
constexpr double kLong = 1 << 20;

// Four digits are more than a model is good for, and keep the page small.
double rounded(double value) {
  if (value <= 0) return 0;
  const double unit = std::pow(10, std::floor(std::log10(value)) - 3);
  return std::round(value / unit) * unit;
}

Json predict_placement(const tuner::CallFacts& model, const tuner::Machine& machine) {
  Json rows = Json::object();
  for (const std::size_t bytes : prediction_sizes()) {
    tuner::CallFacts facts = model;
    facts.bytes = bytes;
    bool first = true;
    for (const tuner::Choice& choice : tuner::candidates(facts, machine)) {
      const std::string name(to_string(choice.algorithm));
      if (std::exchange(first, false)) rows["choice"].push_back(name);
      rows[name].push_back(
          static_cast<std::int64_t>(rounded(static_cast<double>(choice.predicted.count()))));
    }
  }
  return rows;
}

Json link_facts(const tuner::LinkCost& link) {
  return {{"alpha_s", link.latency_s},
          {"overhead_s", link.message_s},
          {"beta_s", link.bytes.seconds(kLong) / kLong},
          {"measured", link.measured}};
}

}  // namespace

// A power of four each: the page draws straight lines between them, on logarithmic scales.
const std::vector<std::size_t>& prediction_sizes() {
  static const std::vector<std::size_t> sizes = [] {
    std::vector<std::size_t> list;
    for (std::size_t bytes = 4; bytes <= std::size_t{1} << 30; bytes *= 4) list.push_back(bytes);
    return list;
  }();
  return sizes;
}

std::vector<int> default_hosts(int n) {
  int hosts = static_cast<int>(std::sqrt(n));
  while (n % hosts != 0) --hosts;
  std::vector<int> host_of;
  for (int rank = 0; rank < n && hosts > 1; ++rank) host_of.push_back(rank / (n / hosts));
  return host_of;
}

Json predict(const schedule::Request& request, int ranks, std::span<const int> host_of,
             const tuner::Machine& machine) {
  tuner::CallFacts facts;
  facts.collective = request.collective;
  facts.order = request.order;
  facts.ranks = ranks;
  std::vector<int> together(static_cast<std::size_t>(ranks), 0);
  facts.host_of = together;
  Json placements = {{"one_host", predict_placement(facts, machine)}};
  facts.symmetric = true;
  placements["symmetric"] = predict_placement(facts, machine);
  facts.symmetric = false;
  std::vector<int> apart(static_cast<std::size_t>(ranks));
  std::iota(apart.begin(), apart.end(), 0);
  facts.host_of = apart;
  placements["apart"] = predict_placement(facts, machine);
  facts.host_of = host_of;
  if (!host_of.empty()) placements["hosts"] = predict_placement(facts, machine);
  return placements;
}

Json machine_facts(const tuner::Machine& machine) {
  return {{"name", machine.name},
          {"date", machine.date},
          {"memory", link_facts(machine.memory)},
          {"tcp", link_facts(machine.tcp)},
          {"gamma_s", machine.fold.seconds(kLong) / kLong}};
}

}  // namespace tutti::tool
