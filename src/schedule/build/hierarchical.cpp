// hierarchical - inside each host, between hosts, inside again; what crosses the wire crosses once.
//
//      host A            host B          equal hosts, all_reduce: every rank owns a slice inside
//      0  1  2           3  4  5         its host and all_reduces it with its likes (slices.cpp)
//       \ | /             \ | /
//      leader 0 ======= leader 3         otherwise: one leader per host speaks for it
//       / | \             / | \                                                              .
//      0  1  2           3  4  5
//
// The leader is the root where there is one, the lowest rank elsewhere. Hosts may have any number
// of ranks, in any order. all_gather passes whole hosts through leaders: equal parts only. Of equal
// hosts all_gather and reduce_scatter go by rails (rails.cpp).
//
// In tree order, where each host's ranks are a subtree of all: the same slices, and between hosts every
// slice of a slice is folded by one rank, for all hosts at once.
#include <algorithm>
#include <bit>

#include "schedule/build/hosts.hpp"
#include "schedule/build/parts.hpp"
#include "schedule/compose.hpp"

namespace tutti::schedule::builders {
namespace {

Step rounds(int n) { return static_cast<Step>(std::bit_width(static_cast<unsigned>(n - 1))); }

// The leader's output reaches the other ranks of its host; `chunks` is all of it.
void spread(Draft& whole, const Hosts& hosts, Chunk chunks, Step first_step) {
  append(whole.program(), binomial_tree_broadcast(hosts.inside(Collective::broadcast, true)),
         {.ranks = hosts.local(), .first_step = first_step, .output = output(0), .scale = chunks});
}

Program by_leaders(const Request& request, const Hosts& hosts) {
  const auto cut = static_cast<Chunk>(hosts.count());
  Draft whole(request, Algorithm::hierarchical, cut);
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

bool spans_equal_hosts(const Request& request) {
  return spans_hosts(request) && Hosts(request).are_equal();
}

// Whether every host's ranks are a subtree of ReductionOrder::tree: they follow each other, as many on each
// host, and a power of two.
bool hosts_are_subtrees(const Request& request) {
  if (!spans_hosts(request)) return false;
  const Hosts hosts(request);
  const std::size_t each = hosts.members[0].size();
  for (std::size_t h = 0; h < hosts.members.size(); ++h)
    for (std::size_t i = 0; i < hosts.members[h].size(); ++i)
      if (hosts.members[h][i] != static_cast<int>(h * each + i)) return false;
  return hosts.are_equal() && std::has_single_bit(each);
}

Program hierarchical_reduce_scatter(const Request& request) {
  const Hosts hosts(request);
  return request.order == ReductionOrder::tree ? rails_reduce_scatter_as_tree(request, hosts)
                                               : rails_reduce_scatter(request, hosts);
}

Program hierarchical_all_reduce(const Request& request) {
  const Hosts hosts(request);
  return hosts.are_equal() ? slices_all_reduce(request, hosts) : by_leaders(request, hosts);
}

Program hierarchical_broadcast(const Request& request) {
  return relay_broadcast(request, Hosts(request));
}

Program hierarchical_reduce(const Request& request) {
  return relay_reduce(request, Hosts(request));
}

Program hierarchical_all_to_all(const Request& request) {
  return bundles_all_to_all(request, Hosts(request));
}

Program hierarchical_all_gather(const Request& request) {
  const Hosts hosts(request);
  if (hosts.are_equal()) return rails_all_gather(request, hosts);
  Draft draft(request, Algorithm::hierarchical);
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
  Draft draft(request, Algorithm::hierarchical);
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
      {Collective::broadcast, Algorithm::hierarchical, hierarchical_broadcast, kOrdered, kEven,
       spans_hosts},
      {Collective::reduce, Algorithm::hierarchical, hierarchical_reduce, kAnyOrder, kEven,
       spans_hosts},
      {Collective::all_reduce, Algorithm::hierarchical, hierarchical_all_reduce, kAnyOrder, kEven,
       spans_hosts, hosts_are_subtrees},
      {Collective::all_gather, Algorithm::hierarchical, hierarchical_all_gather, kOrdered, kEven,
       spans_hosts},
      {Collective::reduce_scatter, Algorithm::hierarchical, hierarchical_reduce_scatter, kAnyOrder,
       kEven, spans_equal_hosts, hosts_are_subtrees},
      {Collective::all_to_all, Algorithm::hierarchical, hierarchical_all_to_all, kOrdered, kEven,
       spans_hosts},
      {Collective::barrier, Algorithm::hierarchical, hierarchical_barrier, kOrdered, kEven,
       spans_hosts},
  };
  return kRows;
}

}  // namespace tutti::schedule::builders
