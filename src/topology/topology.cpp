#include "topology/topology.hpp"

#include <algorithm>
#include <map>

namespace tutti::topology {
namespace {

auto find_odd(auto& odd, int a, int b) {
  return std::lower_bound(odd.begin(), odd.end(), std::pair(a, b),
                          [](const OddLink& link, const std::pair<int, int>& pair) {
                            return std::pair(link.a, link.b) < pair;
                          });
}

bool is_pair(const OddLink& link, int a, int b) { return link.a == a && link.b == b; }

}  // namespace

std::string_view Topology::link(int a, int b) const {
  if (a == b) return "self";
  if (a > b) std::swap(a, b);
  if (const auto it = find_odd(odd, a, b); it != odd.end() && is_pair(*it, a, b)) return it->kind;
  return ranks[a].host == ranks[b].host ? inside : between;
}

void Topology::set_link(int a, int b, std::string_view kind) {
  if (a == b) return;
  if (a > b) std::swap(a, b);
  const auto it = find_odd(odd, a, b);
  const bool known = it != odd.end() && is_pair(*it, a, b);
  const bool ordinary = kind == (ranks[a].host == ranks[b].host ? inside : between);
  if (ordinary) {
    if (known) odd.erase(it);
  } else if (known) {
    it->kind = kind;
  } else {
    odd.insert(it, {a, b, std::string(kind)});
  }
}

std::vector<int> hosts_of(const Topology& topology) {
  std::vector<int> hosts;
  hosts.reserve(topology.ranks.size());
  for (const Seat& seat : topology.ranks) hosts.push_back(seat.host);
  return hosts;
}

std::vector<std::vector<int>> ranks_by_host(std::span<const int> host_of) {
  std::vector<std::vector<int>> groups;
  std::map<int, std::size_t> place;
  for (std::size_t rank = 0; rank < host_of.size(); ++rank) {
    const auto [it, is_new] = place.try_emplace(host_of[rank], groups.size());
    if (is_new) groups.emplace_back();
    groups[it->second].push_back(static_cast<int>(rank));
  }
  return groups;
}

int host_count(std::span<const int> host_of) {
  return host_of.empty() ? 1 : static_cast<int>(ranks_by_host(host_of).size());
}

std::vector<int> host_leaders(std::span<const int> host_of) {
  if (host_of.empty()) return {0};
  std::vector<int> leaders;
  for (const auto& ranks : ranks_by_host(host_of)) leaders.push_back(ranks.front());
  return leaders;
}

bool is_uniform(std::span<const int> host_of) {
  const auto groups = ranks_by_host(host_of);
  return std::all_of(groups.begin(), groups.end(),
                     [&](const auto& ranks) { return ranks.size() == groups.front().size(); });
}

Torus near_square(int n) {
  Torus best{1, n};
  for (int rows = 2; rows <= n / rows; ++rows)
    if (n % rows == 0) best = {rows, n / rows};
  return best;
}

}  // namespace tutti::topology
