#include "mesh/predicted_costs.hpp"

#include <algorithm>
#include <cmath>
#include <set>

namespace tutti::mesh {
namespace {

// Where a group is too large to be played: some figures of a network, only to compare chains by.
constexpr double kMessage_s = 20e-6;
constexpr double kBytes_per_s = 5e9;

Collective collective_of(RedistributionStep::Kind kind) {
  using Kind = RedistributionStep::Kind;
  switch (kind) {
    case Kind::all_gather: return Collective::all_gather;
    case Kind::reduce_scatter: return Collective::reduce_scatter;
    case Kind::all_reduce: return Collective::all_reduce;
    case Kind::all_to_all:
    case Kind::transfer: return Collective::all_to_all;
    case Kind::slice:
    case Kind::make_partial: break;
  }
  return Collective::barrier;
}

// The same pattern, whatever the hosts' numbers.
std::vector<int> renumbered(const std::vector<int>& hosts) {
  std::map<int, int> numbers;
  std::vector<int> pattern;
  for (const int host : hosts)
    pattern.push_back(numbers.emplace(host, static_cast<int>(numbers.size())).first->second);
  return pattern;
}

}  // namespace

PredictedCosts::PredictedCosts(std::shared_ptr<Group> group, MeshAxes axes,
                               const std::vector<int>& rank_at)
    : group_(std::move(group)), axes_(std::move(axes)), rank_at_(rank_at) {
  const std::vector<int> hosts = group_->hosts();
  for (const int rank : rank_at_) hosts_.push_back(hosts[static_cast<std::size_t>(rank)]);
}

const std::vector<PredictedCosts::Seats>& PredictedCosts::seats_along(
    const std::vector<int>& axes) {
  const auto [at, is_new] = seats_.try_emplace(axes);
  if (!is_new) return at->second;
  std::map<Coordinates, Seats> groups;  // by the coordinates of their first
  for (int position = 0; position < static_cast<int>(rank_at_.size()); ++position) {
    Coordinates first = coordinates_of(axes_, position);
    for (const int axis : axes) first[static_cast<std::size_t>(axis)] = 0;
    Seats& seats = groups[first];
    seats.ranks.push_back(rank_at_[static_cast<std::size_t>(position)]);
    seats.hosts.push_back(hosts_[static_cast<std::size_t>(position)]);
  }
  std::set<std::vector<int>> patterns;
  for (auto& [first, seats] : groups) {
    seats.hosts = renumbered(seats.hosts);
    if (patterns.insert(seats.hosts).second) at->second.push_back(std::move(seats));
  }
  return at->second;
}

double PredictedCosts::at_power(Collective collective, int power, const std::vector<int>& ranks) {
  const auto [at, is_new] = known_.try_emplace({collective, power, ranks}, 0.0);
  if (!is_new) return at->second;
  const double bytes = std::exp2(power);
  const auto told = group_->predict(collective, static_cast<std::size_t>(bytes), ranks);
  at->second = told.ok() ? std::chrono::duration<double>(told->time).count()
                         : kMessage_s + bytes / kBytes_per_s;
  return at->second;
}

// Between powers of two straight, and never falling.
double PredictedCosts::price(Collective collective, double bytes, const std::vector<int>& ranks) {
  if (ranks.size() < 2 || bytes <= 0) return 0;
  const int power = static_cast<int>(std::floor(std::log2(std::max(1.0, bytes))));
  const double low = at_power(collective, power, ranks);
  const double high = std::max(low, at_power(collective, power + 1, ranks));
  return low + (bytes / std::exp2(power) - 1) * (high - low);
}

// Where nothing leaves a host, as an all_to_all inside of one; else as one of all.
double PredictedCosts::transfer(const StepTraffic& traffic, const Seats& seats) {
  std::vector<int> near;
  for (std::size_t i = 0; i < seats.ranks.size(); ++i)
    if (seats.hosts[i] == 0) near.push_back(seats.ranks[i]);
  const std::vector<int>& ranks = traffic.host_bytes <= 0 && near.size() > 1 ? near : seats.ranks;
  return price(
      Collective::all_to_all,
      exchange_bytes(traffic, static_cast<int>(ranks.size()), static_cast<int>(near.size())),
      ranks);
}

double PredictedCosts::seconds(const StepTraffic& traffic) {
  double slowest = 0;
  for (const Seats& seats : seats_along(traffic.axes))
    slowest = std::max(slowest,
                       traffic.kind == RedistributionStep::Kind::transfer
                           ? transfer(traffic, seats)
                           : price(collective_of(traffic.kind), traffic.array_bytes, seats.ranks));
  return slowest;
}

}  // namespace tutti::mesh
