#include "topology/topology.hpp"

#include <algorithm>
#include <map>
#include <numeric>

namespace tutti::topology {
namespace {

// The domains that a rank is in, from the outside in, each named with those around it.
std::vector<std::string> domains_of(int host, const Locality* locality) {
  std::vector<std::string> domains;
  std::string path;
  const auto enter = [&](const std::string& name) { domains.push_back(path += name + '/'); };
  if (locality != nullptr && !locality->rack.empty()) {
    const std::string& rack = locality->rack;
    for (std::size_t from = 0, to = 0; from < rack.size(); from = to + 1) {
      to = std::min(rack.find('/', from), rack.size());
      enter(rack.substr(from, to - from));
    }
  }
  // Hosts are known by number, and racks need not be equally deep.
  enter("host " + std::to_string(host));
  if (locality == nullptr) return domains;
  enter("socket " + std::to_string(locality->socket));
  enter("numa " + std::to_string(locality->numa));
  return domains;
}

std::vector<int> unless_sorted(std::vector<int> walk) {
  if (std::is_sorted(walk.begin(), walk.end())) walk.clear();
  return walk;
}

}  // namespace

std::vector<int> walk_of(std::span<const int> host_of, std::span<const Locality> localities) {
  if (localities.empty() && std::is_sorted(host_of.begin(), host_of.end())) return {};
  std::map<std::string, int> lowest;  // rank in a domain
  std::vector<std::vector<int>> keys;
  for (std::size_t rank = 0; rank < host_of.size(); ++rank) {
    const Locality* locality = localities.empty() ? nullptr : &localities[rank];
    std::vector<int>& key = keys.emplace_back();
    for (const std::string& domain : domains_of(host_of[rank], locality))
      key.push_back(lowest.try_emplace(domain, static_cast<int>(rank)).first->second);
  }
  const auto gpu = [&](int rank) {
    return localities.empty() ? std::string() : localities[static_cast<std::size_t>(rank)].gpu;
  };
  std::vector<int> walk(host_of.size());
  std::iota(walk.begin(), walk.end(), 0);
  std::stable_sort(walk.begin(), walk.end(), [&](int a, int b) {
    const auto& left = keys[static_cast<std::size_t>(a)];
    const auto& right = keys[static_cast<std::size_t>(b)];
    return left != right ? left < right : gpu(a) < gpu(b);
  });
  return unless_sorted(std::move(walk));
}

std::vector<int> walk_among(std::span<const int> walk, std::span<const int> members) {
  std::map<int, int> place;
  for (std::size_t i = 0; i < walk.size(); ++i) place[walk[i]] = static_cast<int>(i);
  std::vector<int> among(members.size());
  std::iota(among.begin(), among.end(), 0);
  const auto place_of = [&](int number) {
    const int member = members[static_cast<std::size_t>(number)];
    return walk.empty() ? member : place.at(member);
  };
  std::stable_sort(among.begin(), among.end(),
                   [&](int a, int b) { return place_of(a) < place_of(b); });
  return unless_sorted(std::move(among));
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

Torus near_square(int n) {
  Torus best{1, n};
  for (int rows = 2; rows <= n / rows; ++rows)
    if (n % rows == 0) best = {rows, n / rows};
  return best;
}

}  // namespace tutti::topology
