// rails - all_gather and reduce_scatter of equal hosts: every rank's own way out of its host is used.
//
//      host A   host B   host C        Ranks of like place are a rail. all_gather: parts go round
//      0 ====== 2 ====== 4             the rails (=), and every rank hands on what it has to the
//      |        |        |             others of its host (|).
//      1 ====== 3 ====== 5
//
// reduce_scatter is that backwards: for every host, the next one first, ranks send each other what
// the others' rails want, fold it with what came along their own rail, and pass it on. In tree order each
// host's sums go straight along the rail to their owners, who fold all hosts' at once.
#include "schedule/build/hosts.hpp"

namespace tutti::schedule::builders {
namespace {

// A rank's rail: its likes by host, counted from its own host on.
struct Rail {
  const Hosts& hosts;

  int length() const { return hosts.count(); }
  int rank_at(int way, int place) const {
    const auto host = static_cast<std::size_t>(wrap(hosts.host + way, length()));
    return hosts.members[host][static_cast<std::size_t>(place)];
  }
  int rank_at(int way) const { return rank_at(way, hosts.place); }
  Chunk part(int way) const { return static_cast<Chunk>(rank_at(way)); }
  // Calls visit(rank, place) for the others of this host.
  template <class Visit>
  void each_neighbour(Visit visit) const {
    const int m = hosts.local_size();
    for (int i = 1; i < m; ++i) {
      const int place = wrap(hosts.place + i, m);
      visit(rank_at(0, place), place);
    }
  }
};

}  // namespace

Program rails_all_gather(const Request& request, const Hosts& hosts) {
  const Rail rail{hosts};
  const int n = rail.length();
  Draft draft(request, Algorithm::hierarchical);
  if (!request.in_place) draft.copy(0, output(rail.part(0)), input(0));
  for (int k = 0; k < n; ++k) {
    // The part of the rank k hosts before.
    const Region part = k == 0 ? input(0) : output(rail.part(-k));
    if (k > 0) draft.recv(static_cast<Step>(k - 1), rail.rank_at(-1), part);
    if (k < n - 1) draft.send(static_cast<Step>(k), rail.rank_at(1), part);
    const Step spread = static_cast<Step>(n - 1 + k);
    rail.each_neighbour([&](int rank, int) { draft.send(spread, rank, part); });
  }
  for (int k = 0; k < n; ++k) {
    rail.each_neighbour([&](int rank, int place) {
      draft.recv(static_cast<Step>(n - 1 + k), rank,
                 output(static_cast<Chunk>(rail.rank_at(-k, place))));
    });
  }
  return draft.take();
}

Program rails_reduce_scatter(const Request& request, const Hosts& hosts) {
  const Rail rail{hosts};
  const int n = rail.length();
  Draft draft(request, Algorithm::hierarchical);
  // Step k is about the host k + 1 before this one; in the last step that is this one.
  for (int k = 0; k < n; ++k) {
    rail.each_neighbour([&](int rank, int place) {
      draft.send(static_cast<Step>(k), rank,
                 input(static_cast<Chunk>(rail.rank_at(-k - 1, place))));
    });
  }
  for (int k = 0; k < n; ++k) {
    const Chunk part = rail.part(-k - 1);
    std::vector<Source> sources = {raw(input(part))};
    if (k > 0) {
      const Region along = draft.scratch(part);
      draft.recv(static_cast<Step>(n + k - 1), rail.rank_at(-1), along);
      // What a rank alone on its host begins with is nobody's fold.
      const bool is_raw = k == 1 && hosts.local_size() == 1;
      sources.push_back(is_raw ? raw(along) : partial(along));
    }
    rail.each_neighbour([&](int rank, int) {
      const Region inbox = draft.scratch(part);
      draft.recv(static_cast<Step>(k), rank, inbox);
      sources.push_back(raw(inbox));
    });
    const bool last = k == n - 1;
    Region sum = input(part);
    if (last || sources.size() > 1) {
      sum = last ? output(0) : draft.scratch(part);
      draft.reduce(static_cast<Step>(k), sum, std::move(sources), last);
    }
    if (!last) draft.send(static_cast<Step>(n + k), rail.rank_at(1), sum);
  }
  return draft.take();
}

Program rails_reduce_scatter_as_tree(const Request& request, const Hosts& hosts) {
  const Rail rail{hosts};
  const int n = rail.length();
  Draft draft(request, Algorithm::hierarchical);
  // Step k is about the host k after this one.
  for (int k = 0; k < n; ++k)
    rail.each_neighbour([&](int rank, int place) {
      draft.send(static_cast<Step>(k), rank, input(static_cast<Chunk>(rail.rank_at(k, place))));
    });
  const bool is_alone = hosts.local_size() == 1;
  std::vector<Source> sums(static_cast<std::size_t>(n));  // of this rank's part, by host
  for (int k = n - 1; k >= 0; --k) {
    const Chunk part = rail.part(k);
    std::vector<Source> sources;
    for (const int rank : hosts.local()) {
      const Region own = rank == request.rank ? input(part) : draft.scratch(part);
      if (rank != request.rank) draft.recv(static_cast<Step>(k), rank, own);
      sources.push_back(raw(own));
    }
    const Region sum = is_alone ? input(part) : draft.scratch(part);
    if (!is_alone) draft.reduce(static_cast<Step>(k), sum, std::move(sources), false);
    if (k > 0)
      draft.send(static_cast<Step>(n + k), rail.rank_at(k), sum);
    else
      sums[static_cast<std::size_t>(hosts.host)] = is_alone ? raw(sum) : partial(sum);
  }
  for (int k = 1; k < n; ++k) {
    const Region inbox = draft.scratch(rail.part(0));
    draft.recv(static_cast<Step>(n + k), rail.rank_at(-k), inbox);
    sums[static_cast<std::size_t>(wrap(hosts.host - k, n))] =
        is_alone ? raw(inbox) : partial(inbox);
  }
  draft.reduce(static_cast<Step>(2 * n), output(0), std::move(sums), true);
  return draft.take();
}

}  // namespace tutti::schedule::builders
