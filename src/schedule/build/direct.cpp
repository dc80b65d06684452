// direct - every pair talks at once, nobody forwards anything.
//
//      0 ---- 1        all_reduce, one shot:  everyone sends its input to all and folds all inputs
//      | \  / |        all_reduce, two shots: the owner of slice r gets slice r of all, folds it,
//      |  \/  |                               and sends the result to all
//      | /  \ |
//      3 ---- 2        step 0: all lines, both ways; two shots: once more in step 1
//
// Every reduced result is one fold of raw inputs, in rank or tree order.
#include "schedule/build/builders.hpp"

namespace tutti::schedule::builders {
namespace {

// Calls `visit(peer)` for all others, beginning after this rank so that the load is spread.
template <class Visit>
void each_peer(const Request& request, Visit visit) {
  for (int k = 1; k < request.size; ++k) visit(wrap(request.rank + k, request.size));
}

// Receives a raw contribution from the ranks [first, last) but this one, and lists all of them,
// `own` in its place, as the operands of one fold.
std::vector<Source> collect(Draft& draft, const Request& request, int first, int last, Region own,
                            std::uint64_t extent) {
  std::vector<Source> sources;
  sources.reserve(static_cast<std::size_t>(last - first));
  for (int peer = first; peer < last; ++peer) {
    if (peer == request.rank) {
      sources.push_back(raw(own));
      continue;
    }
    const Region inbox = draft.scratch(extent);
    draft.recv(0, peer, inbox);
    sources.push_back(raw(inbox));
  }
  return sources;
}

Program one_shot(const Request& request) {
  Draft draft(request, Algorithm::direct);
  each_peer(request, [&](int peer) { draft.send(0, peer, input(0)); });
  auto sources = collect(draft, request, 0, request.size, input(0), 0);
  draft.reduce(0, output(0), std::move(sources), true);
  return draft.take();
}

Program two_shots(const Request& request) {
  Draft draft(request, Algorithm::direct, static_cast<Chunk>(request.size));
  const auto own = static_cast<Chunk>(request.rank);
  each_peer(request, [&](int peer) { draft.send(0, peer, input(static_cast<Chunk>(peer))); });
  auto sources = collect(draft, request, 0, request.size, input(own), own);
  draft.reduce(0, output(own), std::move(sources), true);
  each_peer(request, [&](int peer) { draft.send(1, peer, output(own)); });
  each_peer(request, [&](int peer) { draft.recv(1, peer, output(static_cast<Chunk>(peer))); });
  return draft.take();
}

}  // namespace

Program direct_reduce(const Request& request) {
  Draft draft(request, Algorithm::direct);
  if (request.rank != request.root) {
    draft.send(0, request.root, input(0));
    return draft.take();
  }
  auto sources = collect(draft, request, 0, request.size, input(0), 0);
  draft.reduce(0, output(0), std::move(sources), true);
  return draft.take();
}

Program direct_all_gather(const Request& request) {
  Draft draft(request, Algorithm::direct);
  each_peer(request, [&](int peer) { draft.send(0, peer, input(0)); });
  if (!request.in_place) draft.copy(0, output(static_cast<Chunk>(request.rank)), input(0));
  each_peer(request, [&](int peer) { draft.recv(0, peer, output(static_cast<Chunk>(peer))); });
  return draft.take();
}

Program direct_reduce_scatter(const Request& request) {
  Draft draft(request, Algorithm::direct);
  const auto own = static_cast<Chunk>(request.rank);
  each_peer(request, [&](int peer) { draft.send(0, peer, input(static_cast<Chunk>(peer))); });
  auto sources = collect(draft, request, 0, request.size, input(own), own);
  draft.reduce(0, output(0), std::move(sources), true);
  return draft.take();
}

namespace {

Program direct_broadcast(const Request& request) {
  Draft draft(request, Algorithm::direct);
  if (request.rank != request.root) {
    draft.recv(0, request.root, output(0));
  } else {
    each_peer(request, [&](int peer) { draft.send(0, peer, output(0)); });
  }
  return draft.take();
}

Program direct_all_reduce(const Request& request) {
  return request.shots == 1 ? one_shot(request) : two_shots(request);
}

Program direct_gather(const Request& request) {
  Draft draft(request, Algorithm::direct);
  if (request.rank != request.root) {
    draft.send(0, request.root, input(0));
    return draft.take();
  }
  each_peer(request, [&](int peer) { draft.recv(0, peer, output(static_cast<Chunk>(peer))); });
  if (!request.in_place) draft.copy(0, output(static_cast<Chunk>(request.rank)), input(0));
  return draft.take();
}

Program direct_scatter(const Request& request) {
  Draft draft(request, Algorithm::direct);
  if (request.rank != request.root) {
    draft.recv(0, request.root, output(0));
    return draft.take();
  }
  each_peer(request, [&](int peer) { draft.send(0, peer, input(static_cast<Chunk>(peer))); });
  if (!request.in_place) draft.copy(0, output(0), input(static_cast<Chunk>(request.rank)));
  return draft.take();
}

Program direct_all_to_all(const Request& request) {
  Draft draft(request, Algorithm::direct);
  const auto own = static_cast<Chunk>(request.rank);
  const auto n = static_cast<std::uint64_t>(request.size);
  each_peer(request, [&](int peer) { draft.send(0, peer, input(static_cast<Chunk>(peer))); });
  if (!request.in_place) {
    draft.copy(0, output(own), input(own));
    each_peer(request, [&](int peer) { draft.recv(0, peer, output(static_cast<Chunk>(peer))); });
    return draft.take();
  }
  // In place a block cannot land where the one that leaves still lies: both sides would wait.
  each_peer(request, [&](int peer) {
    const Region inbox = draft.scratch(static_cast<std::uint64_t>(peer) * n + own);
    draft.recv(0, peer, inbox);
    draft.copy(0, output(static_cast<Chunk>(peer)), inbox);
  });
  return draft.take();
}

Program direct_barrier(const Request& request) {
  Draft draft(request, Algorithm::direct);
  if (request.size == 1) return draft.take();
  const Region token = draft.scratch(0);
  each_peer(request, [&](int peer) { draft.send(0, peer, token); });
  each_peer(request, [&](int peer) { draft.recv(0, peer, draft.scratch(0)); });
  return draft.take();
}

Program direct_scan(const Request& request) {
  Draft draft(request, Algorithm::direct);
  for (int peer = request.rank + 1; peer < request.size; ++peer) draft.send(0, peer, input(0));
  auto sources = collect(draft, request, 0, request.rank + 1, input(0), 0);
  draft.reduce(0, output(0), std::move(sources), true);
  return draft.take();
}

Program direct_exclusive_scan(const Request& request) {
  Draft draft(request, Algorithm::direct);
  for (int peer = request.rank + 1; peer < request.size; ++peer) draft.send(0, peer, input(0));
  auto sources = collect(draft, request, 0, request.rank, input(0), 0);
  if (!sources.empty()) draft.reduce(0, output(0), std::move(sources), true);
  return draft.take();
}

}  // namespace

std::span<const Entry> direct_rows() {
  static constexpr Entry kRows[] = {
      {Collective::broadcast, Algorithm::direct, direct_broadcast, kOrdered},
      {Collective::reduce, Algorithm::direct, direct_reduce, kOrdered},
      {Collective::all_reduce, Algorithm::direct, direct_all_reduce, kOrdered},
      {Collective::gather, Algorithm::direct, direct_gather, kOrdered, kUneven},
      {Collective::all_gather, Algorithm::direct, direct_all_gather, kOrdered, kUneven},
      {Collective::scatter, Algorithm::direct, direct_scatter, kOrdered, kUneven},
      {Collective::reduce_scatter, Algorithm::direct, direct_reduce_scatter, kOrdered, kUneven},
      {Collective::all_to_all, Algorithm::direct, direct_all_to_all, kOrdered, kUneven},
      {Collective::barrier, Algorithm::direct, direct_barrier, kOrdered},
      {Collective::scan, Algorithm::direct, direct_scan, kOrdered},
      {Collective::exclusive_scan, Algorithm::direct, direct_exclusive_scan, kOrdered},
  };
  return kRows;
}

}  // namespace tutti::schedule::builders
