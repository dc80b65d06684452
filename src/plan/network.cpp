#include "plan/network.hpp"

#include <algorithm>
#include <cstdlib>
#include <numeric>

#include "topology/topology.hpp"

namespace tutti::plan {
namespace {

Standing everybody(const Cluster& cluster, int seats) {
  const auto count = [](int number, int per) {
    std::vector<int> numbers(static_cast<std::size_t>((number + per - 1) / per));
    std::iota(numbers.begin(), numbers.end(), 0);
    return numbers;
  };
  const int hosts = (seats + cluster.ranks_per_host - 1) / cluster.ranks_per_host;
  return {count(seats, 1), count(seats, cluster.ranks_per_host),
          count(hosts, std::max(1, cluster.hosts_per_switch))};
}

std::size_t most(const std::vector<int>& numbers) {
  return numbers.empty()
             ? 0
             : static_cast<std::size_t>(1 + *std::max_element(numbers.begin(), numbers.end()));
}

// Steps to go on a ring of `size`, the shorter way round; positive: upwards.
int way_round(int from, int to, int size) {
  const int up = (to - from + size) % size;
  return up <= size - up ? up : up - size;
}

}  // namespace

double take(double& until, double from, double seconds) {
  const double start = std::max(until, from);
  until = start + seconds;
  return start;
}

Network::Network(const Cluster& cluster, int seats) : Network(cluster, everybody(cluster, seats)) {}

Network::Network(const Cluster& cluster, Standing standing)
    : cluster_(cluster),
      standing_(std::move(standing)),
      has_uplinks_(cluster.fabric == Fabric::fat_tree && cluster.oversubscription > 1) {
  cores_.resize(most(standing_.seat));
  near_.resize(cores_.size());
  far_.resize(near_.size());
  hosts_.resize(most(standing_.host));
  leaves_.resize(most(standing_.leaf));
  if (cluster.fabric == Fabric::torus_2d) {
    const auto torus = topology::near_square(static_cast<int>(standing_.host.size()));
    rows_ = torus.rows;
    columns_ = torus.columns;
    links_.resize(hosts_.size() * kDirections);
  }
}

double& Network::core(int seat) {
  if (is_switch(seat)) return switches_core_ = 0;
  return cores_[static_cast<std::size_t>(standing_.seat[static_cast<std::size_t>(seat)])];
}

const Wire& Network::wire(int from, int to) const {
  const bool apart = is_switch(from) || is_switch(to) || host_of(from) != host_of(to);
  return apart ? cluster_.between : cluster_.within;
}

int Network::kind(int from, int to) const {
  if (host_of(from) == host_of(to)) return 0;
  return has_uplinks_ && leaf_of(host_of(from)) != leaf_of(host_of(to)) ? 2 : 1;
}

double Network::latency(int from, int to) const {
  const double once = wire(from, to).latency;
  if (is_switch(from) || is_switch(to)) return once / 2;
  const int a = host_of(from);
  const int b = host_of(to);
  if (cluster_.fabric != Fabric::torus_2d || a == b) return once;
  const int hops = std::abs(way_round(a % columns_, b % columns_, columns_)) +
                   std::abs(way_round(a / columns_, b / columns_, rows_));
  return once * hops;
}

void Network::pass(double& until, double bandwidth) {
  const double all = bytes_ / bandwidth;
  const double start = take(until, begin_.first, all);
  end_.first = std::max(end_.first, start + all / pieces_);
  end_.last = std::max({end_.last, start + all, begin_.last + all / pieces_});
}

// Dimension by dimension, as wormhole routers do; each link in one direction.
void Network::take_torus(int from_host, int to_host) {
  int row = from_host / columns_;
  int column = from_host % columns_;
  const auto link = [&](Direction direction) -> double& {
    const auto host = static_cast<std::size_t>(row * columns_ + column);
    return links_[static_cast<std::size_t>(standing_.host[host]) * kDirections + direction];
  };
  const double bandwidth = cluster_.between.bandwidth;
  for (int way = way_round(column, to_host % columns_, columns_); way != 0;) {
    pass(link(way > 0 ? kEast : kWest), bandwidth);
    column = (column + (way > 0 ? 1 : columns_ - 1)) % columns_;
    way += way > 0 ? -1 : 1;
  }
  for (int way = way_round(row, to_host / columns_, rows_); way != 0;) {
    pass(link(way > 0 ? kSouth : kNorth), bandwidth);
    row = (row + (way > 0 ? 1 : rows_ - 1)) % rows_;
    way += way > 0 ? -1 : 1;
  }
}

void Network::take_between(int from, int to) {
  const double bandwidth = cluster_.between.bandwidth;
  const auto host = [&](int seat) -> Ways& {
    return hosts_[static_cast<std::size_t>(
        standing_.host[static_cast<std::size_t>(host_of(seat))])];
  };
  const auto leaf = [&](int seat) -> Ways& {
    return leaves_[static_cast<std::size_t>(
        standing_.leaf[static_cast<std::size_t>(leaf_of(host_of(seat)))])];
  };
  const double uplinks = cluster_.hosts_per_switch *
                         (cluster_.host_bandwidth > 0 ? cluster_.host_bandwidth
                                                      : bandwidth * cluster_.ranks_per_host) /
                         cluster_.oversubscription;
  const bool climbs = has_uplinks_ && !is_switch(from) && !is_switch(to) &&
                      leaf_of(host_of(from)) != leaf_of(host_of(to));
  if (!is_switch(from)) {
    const auto seat = static_cast<std::size_t>(standing_.seat[static_cast<std::size_t>(from)]);
    pass(far_[seat].out, bandwidth);
    if (cluster_.host_bandwidth > 0) pass(host(from).out, cluster_.host_bandwidth);
    if (climbs) pass(leaf(from).out, uplinks);
  }
  if (cluster_.fabric == Fabric::torus_2d) take_torus(host_of(from), host_of(to));
  if (!is_switch(to)) {
    if (climbs) pass(leaf(to).in, uplinks);
    if (cluster_.host_bandwidth > 0) pass(host(to).in, cluster_.host_bandwidth);
    const auto seat = static_cast<std::size_t>(standing_.seat[static_cast<std::size_t>(to)]);
    pass(far_[seat].in, bandwidth);
  }
}

Network::Passage Network::send(int from, int to, double bytes, double pieces, Flow ready,
                               double latency_factor) {
  bytes_ = bytes;
  pieces_ = pieces;
  begin_ = ready;
  end_ = ready;
  if (&wire(from, to) == &cluster_.between) {
    take_between(from, to);
  } else {
    const auto here = static_cast<std::size_t>(standing_.seat[static_cast<std::size_t>(from)]);
    const auto there = static_cast<std::size_t>(standing_.seat[static_cast<std::size_t>(to)]);
    pass(near_[here].out, cluster_.within.bandwidth);
    pass(near_[there].in, cluster_.within.bandwidth);
  }
  const double flight =
      latency(from, to) * latency_factor - (is_switch(to) ? 0 : overhead(from, to));
  const double at_least = std::max(0.0, flight);
  return {end_, {end_.first + at_least, end_.last + at_least}};
}

}  // namespace tutti::plan
