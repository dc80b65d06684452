// schedule/build/hosts.hpp - who lives where, seen from one rank.
#pragma once

#include <algorithm>
#include <vector>

#include "schedule/build/walk.hpp"

namespace tutti::schedule::builders {

// In each host's list the leader stands first.
struct Hosts {
  std::vector<std::vector<int>> members;
  std::vector<int> leaders;
  int host = 0, place = 0;  // of this rank
  int root_host = 0;

  explicit Hosts(const Request& request) {
    std::vector<int> names;  // of the hosts, in the order in which they appear
    int largest = -1;
    std::size_t number = 0;
    for (int i = 0; i < request.size; ++i) {
      const int rank = may_walk(request) ? request.walk[static_cast<std::size_t>(i)] : i;
      const int name = request.host_of[static_cast<std::size_t>(rank)];
      // Ranks of a host mostly follow each other, and hosts in rising order: looking each up in a map
      // takes a minute for 24,576 programs.
      if (names.empty() || name > largest) {
        largest = name;
        const std::size_t like_before = members.empty() ? 1 : members.back().size();
        members.emplace_back().reserve(like_before);
        names.push_back(name);
        number = names.size() - 1;
      } else if (names[number] != name) {
        number =
            static_cast<std::size_t>(std::find(names.begin(), names.end(), name) - names.begin());
        if (number == names.size()) {
          members.emplace_back();
          names.push_back(name);
        }
      }
      auto& list = members[number];
      const bool leads = has_root(request.collective) && rank == request.root;
      list.insert(leads ? list.begin() : list.end(), rank);
      if (rank == request.rank) host = static_cast<int>(number);
      if (rank == request.root) root_host = static_cast<int>(number);
    }
    for (const auto& list : members) leaders.push_back(list.front());
    const auto& here = local();
    place = static_cast<int>(std::find(here.begin(), here.end(), request.rank) - here.begin());
  }

  const std::vector<int>& local() const { return members[static_cast<std::size_t>(host)]; }
  int local_size() const { return static_cast<int>(local().size()); }
  int count() const { return static_cast<int>(leaders.size()); }
  bool is_leader() const { return place == 0; }
  int leader() const { return local().front(); }
  bool are_equal() const {
    return std::all_of(members.begin(), members.end(),
                       [&](const auto& list) { return list.size() == members[0].size(); });
  }
  // Requests for a part inside this host, and for one among the leaders.
  Request inside(Collective collective, bool in_place) const {
    return {collective, local_size(), place, 0, in_place, 2, {}};
  }
  Request between(Collective collective, int root) const {
    return {collective, count(), host, root, true, 2, {}};
  }
};

// Whether the request names hosts, and more than one.
inline bool spans_hosts(const Request& request) {
  return !request.host_of.empty() &&
         std::any_of(request.host_of.begin(), request.host_of.end(),
                     [&](int host) { return host != request.host_of[0]; });
}

// Ranks as runs of neighbours, ascending: regions of output that may travel as one message each.
inline std::vector<Region> runs_of(std::vector<int> ranks) {
  std::sort(ranks.begin(), ranks.end());
  std::vector<Region> runs;
  for (const int rank : ranks) {
    const auto block = static_cast<Chunk>(rank);
    if (runs.empty() || runs.back().first + runs.back().count != block)
      runs.push_back(output(block, 0));
    ++runs.back().count;
  }
  return runs;
}

// Of equal hosts, by slices (slices.cpp).
Program slices_all_reduce(const Request& request, const Hosts& hosts);
// From host to host in pieces (relay.cpp).
Program relay_broadcast(const Request& request, const Hosts& hosts);
Program relay_reduce(const Request& request, const Hosts& hosts);
// One message for each pair of hosts (bundles.cpp).
Program bundles_all_to_all(const Request& request, const Hosts& hosts);
// By rails, where hosts are equal: ranks of like place on all hosts pass parts round, and spread them
// inside their hosts, or gather them there first.
Program rails_all_gather(const Request& request, const Hosts& hosts);
Program rails_reduce_scatter(const Request& request, const Hosts& hosts);
// In tree order, where each host's ranks are a subtree: parts go straight to their owners.
Program rails_reduce_scatter_as_tree(const Request& request, const Hosts& hosts);

}  // namespace tutti::schedule::builders
