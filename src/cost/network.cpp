#include "cost/network.hpp"

#include <algorithm>
#include <cstdlib>
#include <numeric>

#include "topology/topology.hpp"

namespace tutti::cost {
namespace {

std::vector<int> up_to(std::size_t count) {
  std::vector<int> numbers(count);
  std::iota(numbers.begin(), numbers.end(), 0);
  return numbers;
}

std::size_t most(const std::vector<int>& numbers) {
  return numbers.empty()
             ? 0
             : static_cast<std::size_t>(1 + *std::max_element(numbers.begin(), numbers.end()));
}

// Takes `until` for `seconds` from when it is free, but not before `from`; returns when it began.
double take(double& until, double from, double seconds) {
  const double start = std::max(until, from);
  until = start + seconds;
  return start;
}

// Steps to go on a ring of `size`, the shorter way round; positive: upwards.
int way_round(int from, int to, int size) {
  const int up = (to - from + size) % size;
  return up <= size - up ? up : up - size;
}

}  // namespace

Standing Standing::everybody(const Site& site) {
  return {up_to(site.host_of.size()), up_to(static_cast<std::size_t>(site.hosts())),
          up_to(most(site.leaf_of)), up_to(most(site.machine_of))};
}

Network::Network(const Site& site, const Standing& standing) : site_(site), standing_(standing) {
  cores_.resize(most(standing.seat));
  near_.resize(cores_.size());
  far_.resize(cores_.size());
  hosts_.resize(most(standing.host));
  leaves_.resize(most(standing.leaf));
  if (site.is_crowded())
    pools_.assign(most(standing.machine),
                  std::vector<double>(static_cast<std::size_t>(site.cores)));
  if (site.torus) {
    const auto torus = topology::near_square(site.hosts());
    rows_ = torus.rows;
    columns_ = torus.columns;
    links_.resize(hosts_.size() * kDirections);
  }
}

Network::CoreTime Network::take_core(int seat, double from, double handling, double working) {
  if (site_.is_switch(seat)) return {from, from};
  CoreTime& own = cores_[static_cast<std::size_t>(standing_.seat[static_cast<std::size_t>(seat)])];
  const double handled = take(own.handling, from, handling);
  if (pools_.empty() || handling + working == 0)
    return {handled, take(own.working, from, handling + working)};
  const auto machine = static_cast<std::size_t>(site_.machine_of[static_cast<std::size_t>(seat)]);
  auto& pool = pools_[static_cast<std::size_t>(standing_.machine[machine])];
  double& core = *std::min_element(pool.begin(), pool.end());
  const double worked = take(own.working, std::max(from, core), handling + working);
  core = own.working;
  return {handled, worked};
}

void Network::Passage::take(double& until, double seconds) {
  const double start = cost::take(until, begin.first, seconds);
  end.first = std::max(end.first, start + seconds / pieces);
  end.last = std::max({end.last, start + seconds, begin.last + seconds / pieces});
}

// Dimension by dimension, as wormhole routers do; each link in one direction.
void Network::pass_torus(int from_host, int to_host, double seconds, Passage& passage) {
  int row = from_host / columns_;
  int column = from_host % columns_;
  const auto link = [&](Direction direction) -> double& {
    const int place = row * columns_ + column;
    const int host = standing_.host[static_cast<std::size_t>(place)];
    return links_[static_cast<std::size_t>(host) * kDirections + direction];
  };
  for (int way = way_round(column, to_host % columns_, columns_); way != 0;) {
    passage.take(link(way > 0 ? kEast : kWest), seconds);
    column = (column + (way > 0 ? 1 : columns_ - 1)) % columns_;
    way += way > 0 ? -1 : 1;
  }
  for (int way = way_round(row, to_host / columns_, rows_); way != 0;) {
    passage.take(link(way > 0 ? kSouth : kNorth), seconds);
    row = (row + (way > 0 ? 1 : rows_ - 1)) % rows_;
    way += way > 0 ? -1 : 1;
  }
}

void Network::pass_between(const Message& message, double seconds, Passage& passage) {
  const auto [from, to] = std::pair(message.from, message.to);
  const bool from_rank = !site_.is_switch(from);
  const bool to_rank = !site_.is_switch(to);
  const bool climbs = from_rank && to_rank && site_.climbs(from, to);
  const auto host = [&](int seat) -> Ways& {
    return hosts_[static_cast<std::size_t>(
        standing_.host[static_cast<std::size_t>(site_.host(seat))])];
  };
  const auto leaf = [&](int seat) -> Ways& {
    return leaves_[static_cast<std::size_t>(
        standing_.leaf[static_cast<std::size_t>(site_.leaf(site_.host(seat)))])];
  };
  if (from_rank) {
    passage.take(of_seat(far_, from).out, seconds + site_.between.piece_s * message.pieces);
    if (site_.host_way > 0) passage.take(host(from).out, seconds * site_.host_way);
    if (climbs) passage.take(leaf(from).out, seconds * site_.leaf_way);
  }
  if (site_.torus) pass_torus(site_.host(from), site_.host(to), seconds, passage);
  if (to_rank) {
    const double coming = seconds * (message.collides ? site_.incast : 1);
    if (climbs) passage.take(leaf(to).in, seconds * site_.leaf_way);
    if (site_.host_way > 0) passage.take(host(to).in, coming * site_.host_way);
    passage.take(of_seat(far_, to).in, coming);
  }
}

Flow Network::pass(const Message& message, Flow begin) {
  Passage passage{begin, begin, message.pieces};
  const bool together = site_.are_together(message.from, message.to);
  const Curve& way = together ? site_.within.way : site_.between.way;
  if (way.empty()) return begin;
  const double seconds = way.seconds(message.bytes);
  if (together) {
    passage.take(of_seat(near_, message.from).out, seconds + site_.within.piece_s * message.pieces);
    passage.take(of_seat(near_, message.to).in, seconds);
  } else {
    pass_between(message, seconds, passage);
  }
  return passage.end;
}

int Network::hops(int from_host, int to_host) const {
  return std::abs(way_round(from_host % columns_, to_host % columns_, columns_)) +
         std::abs(way_round(from_host / columns_, to_host / columns_, rows_));
}

double Network::flight_s(const Message& message) const {
  const MessageCost& cost = site_.message(message.from, message.to);
  double latency = cost.latency_s * message.latency_factor;
  if (site_.is_switch(message.from) || site_.is_switch(message.to))
    latency /= 2;
  else if (site_.torus && !site_.are_together(message.from, message.to))
    latency *= hops(site_.host(message.from), site_.host(message.to));
  return std::max(0.0, latency - (site_.is_switch(message.to) ? 0 : cost.overhead_s));
}

}  // namespace tutti::cost
