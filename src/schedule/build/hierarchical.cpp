// hierarchical - inside each host, between hosts, inside again; what crosses the wire crosses once.
//
//      host A            host B          equal hosts, all_reduce: every rank owns a slice inside
//      0  1  2           3  4  5         its host and all_reduces it with its likes (grid.hpp)
//       \ | /             \ | /
//      leader 0 ======= leader 3         otherwise: one leader per host speaks for it
//       / | \             / | \                                                              .
//      0  1  2           3  4  5
//
// The leader is the root where there is one, the lowest rank elsewhere. Hosts may have any number
// of ranks, in any order. all_gather passes whole hosts through leaders: equal parts only.
#include <algorithm>
#include <bit>

#include "schedule/build/grid.hpp"
#include "schedule/build/parts.hpp"
#include "schedule/compose.hpp"

namespace tutti::schedule::builders {
namespace {

constexpr Algorithm kName = Algorithm::hierarchical;

// Who lives where, seen from one rank. In each host's list the leader stands first.
struct Hosts {
  std::vector<std::vector<int>> members;
  std::vector<int> leaders;
  int host = 0, place = 0;  // of this rank
  int root_host = 0;

  explicit Hosts(const Request& request) {
    std::vector<int> names;  // of the hosts, in the order in which they appear
    int largest = -1;
    std::size_t number = 0;
    for (int rank = 0; rank < request.size; ++rank) {
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

Step rounds(int n) { return static_cast<Step>(std::bit_width(static_cast<unsigned>(n - 1))); }

// The leader's output reaches the other ranks of its host; `chunks` is all of it.
void spread(Draft& whole, const Hosts& hosts, Chunk chunks, Step first_step) {
  append(whole.program(), binomial_tree_broadcast(hosts.inside(Collective::broadcast, true)),
         {.ranks = hosts.local(), .first_step = first_step, .output = output(0), .scale = chunks});
}

Program by_slices(const Request& request, const Hosts& hosts) {
  Grid grid{hosts.local(), {}, hosts.place, hosts.host};
  for (const auto& list : hosts.members) {
    grid.column.push_back(list[static_cast<std::size_t>(hosts.place)]);
  }
  return grid_all_reduce(request, kName, grid, {direct_reduce_scatter, direct_all_gather, 1});
}

Program by_leaders(const Request& request, const Hosts& hosts) {
  const auto cut = static_cast<Chunk>(hosts.count());
  Draft whole(request, kName, cut);
  Placement placement{.ranks = hosts.local(), .input = input(0), .output = output(0), .scale = cut};
  placement.finish = false;
  append(whole.program(), direct_reduce(hosts.inside(Collective::reduce, request.in_place)),
         placement);
  if (hosts.is_leader()) {
    placement = {.ranks = hosts.leaders, .first_step = 1, .input = output(0), .output = output(0)};
    placement.raw = false;
    append(whole.program(), ring_all_reduce(hosts.between(Collective::all_reduce, 0)), placement);
  }
  spread(whole, hosts, cut, 1 + 2 * (cut - 1));
  return whole.take();
}

// The ranks of one host as runs of neighbours, which travel as one message each.
std::vector<Region> runs_of(std::vector<int> ranks) {
  std::sort(ranks.begin(), ranks.end());
  std::vector<Region> runs;
  for (int rank : ranks) {
    const auto block = static_cast<Chunk>(rank);
    if (runs.empty() || runs.back().first + runs.back().count != block) {
      runs.push_back(output(block, 0));
    }
    ++runs.back().count;
  }
  return runs;
}

// Leaders pass their hosts' blocks round a ring. Returns the first step after that.
Step pass_hosts_round(Draft& draft, const Hosts& hosts, Step base) {
  std::vector<std::vector<Region>> runs;
  std::size_t most = 0;
  for (const auto& list : hosts.members) {
    runs.push_back(runs_of(list));
    most = std::max(most, runs.back().size());
  }
  const int n = hosts.count();
  const Step end = base + static_cast<Step>(most) * static_cast<Step>(n - 1);
  if (!hosts.is_leader()) return end;
  const auto rank_at = [&](int h) { return hosts.leaders[static_cast<std::size_t>(wrap(h, n))]; };
  const auto blocks_of = [&](int h) { return runs[static_cast<std::size_t>(wrap(h, n))]; };
  for (int k = 0; k < n - 1; ++k, base += static_cast<Step>(most)) {
    Step step = base;
    for (const Region& run : blocks_of(hosts.host - k)) {
      draft.send(step++, rank_at(hosts.host + 1), run);
    }
    step = base;
    for (const Region& run : blocks_of(hosts.host - k - 1)) {
      draft.recv(step++, rank_at(hosts.host - 1), run);
    }
  }
  return end;
}

// Whether the request names hosts, and more than one.
bool spans_hosts(const Request& request) {
  return !request.host_of.empty() &&
         std::any_of(request.host_of.begin(), request.host_of.end(),
                     [&](int host) { return host != request.host_of[0]; });
}

Program hierarchical_all_reduce(const Request& request) {
  const Hosts hosts(request);
  return hosts.are_equal() ? by_slices(request, hosts) : by_leaders(request, hosts);
}

Program hierarchical_broadcast(const Request& request) {
  const Hosts hosts(request);
  Draft whole(request, kName);
  if (hosts.is_leader()) {
    append(whole.program(),
           binomial_tree_broadcast(hosts.between(Collective::broadcast, hosts.root_host)),
           {.ranks = hosts.leaders, .output = output(0)});
  }
  spread(whole, hosts, 1, rounds(hosts.count()));
  return whole.take();
}

Program hierarchical_reduce(const Request& request) {
  const Hosts hosts(request);
  const bool at_root = request.rank == request.root;
  Draft whole(request, kName);
  // Leaders other than the root have no output: their host's sum is kept in scratch.
  const Region sum = at_root || !hosts.is_leader() ? output(0) : whole.scratch(0);
  Placement placement{.ranks = hosts.local(), .input = input(0), .output = sum};
  placement.finish = false;
  append(whole.program(), direct_reduce(hosts.inside(Collective::reduce, request.in_place)),
         placement);
  if (hosts.is_leader()) {
    placement = {.ranks = hosts.leaders, .first_step = 1, .input = sum, .output = sum};
    placement.raw = false;
    append(whole.program(),
           binomial_tree_reduce(hosts.between(Collective::reduce, hosts.root_host)), placement);
  }
  return whole.take();
}

Program hierarchical_all_gather(const Request& request) {
  const Hosts hosts(request);
  Draft draft(request, kName);
  if (!hosts.is_leader()) {
    draft.send(0, hosts.leader(), input(0));
  } else {
    if (!request.in_place) draft.copy(0, output(static_cast<Chunk>(request.rank)), input(0));
    for (int rank : hosts.local()) {
      if (rank != request.rank) draft.recv(0, rank, output(static_cast<Chunk>(rank)));
    }
  }
  const Step next = pass_hosts_round(draft, hosts, 1);
  spread(draft, hosts, static_cast<Chunk>(request.size), next);
  return draft.take();
}

// Every host reports to its leader, leaders tell each other, leaders release their hosts.
Program hierarchical_barrier(const Request& request) {
  const Hosts hosts(request);
  Draft draft(request, kName);
  const Region token = draft.scratch(0);
  const Step last = 1 + rounds(hosts.count());
  if (!hosts.is_leader()) {
    draft.send(0, hosts.leader(), token);
    draft.recv(last, hosts.leader(), token);
    return draft.take();
  }
  const auto others = std::span(hosts.local()).subspan(1);
  for (int rank : others) draft.recv(0, rank, token);
  disseminate(
      draft, hosts.count(), hosts.host,
      [&](int host) { return hosts.leaders[static_cast<std::size_t>(host)]; }, token, 1);
  for (int rank : others) draft.send(last, rank, token);
  return draft.take();
}

}  // namespace

std::span<const Entry> hierarchical_rows() {
  static constexpr Entry kRows[] = {
      {Collective::broadcast, kName, hierarchical_broadcast, kOrdered, kEven, spans_hosts},
      {Collective::reduce, kName, hierarchical_reduce, kAnyOrder, kEven, spans_hosts},
      {Collective::all_reduce, kName, hierarchical_all_reduce, kAnyOrder, kEven, spans_hosts},
      {Collective::all_gather, kName, hierarchical_all_gather, kOrdered, kEven, spans_hosts},
      {Collective::barrier, kName, hierarchical_barrier, kOrdered, kEven, spans_hosts},
  };
  return kRows;
}

}  // namespace tutti::schedule::builders
