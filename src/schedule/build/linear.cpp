// linear - the root deals with one rank after the other; a scan goes along a chain.
//
//      broadcast, scatter        reduce, gather            scan
//
//      root --0--> 1             1 --0--> root             0 --0--> 1 --1--> 2 --2--> 3
//           --1--> 2             2 --1-->
//           --2--> 3             3 --2-->
//
// Needs no memory beyond the call's own where folds are fused. A scan hands the fold of all ranks so far
// on to the next; the root of a reduce begins with its own input, so that is in no rank order.
#include "schedule/build/builders.hpp"

namespace tutti::schedule::builders {
namespace {

// When the root's turn with `rank` comes: others in rising order after the root.
Step turn(const Request& request, int rank) {
  return static_cast<Step>(wrap(rank - request.root, request.size) - 1);
}

// Calls `visit(step, peer)` for each rank but the root, in the order of turns.
template <class Visit>
void each_turn(const Request& request, Visit visit) {
  for (int k = 1; k < request.size; ++k) {
    visit(static_cast<Step>(k - 1), wrap(request.root + k, request.size));
  }
}

Program linear_broadcast(const Request& request) {
  Draft draft(request, Algorithm::linear);
  if (request.rank != request.root) {
    draft.recv(turn(request, request.rank), request.root, output(0));
  } else {
    each_turn(request, [&](Step step, int peer) { draft.send(step, peer, output(0)); });
  }
  return draft.take();
}

Program linear_reduce(const Request& request) {
  if (request.size == 1) return alone(request, Algorithm::linear);
  Draft draft(request, Algorithm::linear);
  if (request.rank != request.root) {
    draft.send(turn(request, request.rank), request.root, input(0));
    return draft.take();
  }
  // The root's own input goes in first: in place it is overwritten by the first fold.
  Source so_far = raw(input(0));
  const auto last = static_cast<Step>(request.size - 2);
  each_turn(request, [&](Step step, int peer) {
    const Region inbox = draft.scratch(0);
    draft.recv(step, peer, inbox);
    draft.reduce(step, output(0), {so_far, raw(inbox)}, step == last);
    so_far = partial(output(0));
  });
  return draft.take();
}

Program linear_gather(const Request& request) {
  Draft draft(request, Algorithm::linear);
  if (request.rank != request.root) {
    draft.send(turn(request, request.rank), request.root, input(0));
    return draft.take();
  }
  if (!request.in_place) draft.copy(0, output(static_cast<Chunk>(request.rank)), input(0));
  each_turn(request,
            [&](Step step, int peer) { draft.recv(step, peer, output(static_cast<Chunk>(peer))); });
  return draft.take();
}

Program linear_scatter(const Request& request) {
  Draft draft(request, Algorithm::linear);
  if (request.rank != request.root) {
    draft.recv(turn(request, request.rank), request.root, output(0));
    return draft.take();
  }
  if (!request.in_place) draft.copy(0, output(0), input(static_cast<Chunk>(request.rank)));
  each_turn(request,
            [&](Step step, int peer) { draft.send(step, peer, input(static_cast<Chunk>(peer))); });
  return draft.take();
}

// Everyone reports to rank 0, which then releases everyone. All receives of rank 0 write one chunk
// and all its sends read it, so that no send leaves before the last report is in.
Program linear_barrier(const Request& request) {
  Draft draft(request, Algorithm::linear);
  if (request.size == 1) return draft.take();
  const Region token = draft.scratch(0);
  const auto rounds = static_cast<Step>(request.size - 1);
  if (request.rank != 0) {
    const auto mine = static_cast<Step>(request.rank - 1);
    draft.send(mine, 0, token);
    draft.recv(rounds + mine, 0, token);
    return draft.take();
  }
  for (Step k = 0; k < rounds; ++k) draft.recv(k, static_cast<int>(k) + 1, token);
  for (Step k = 0; k < rounds; ++k) draft.send(rounds + k, static_cast<int>(k) + 1, token);
  return draft.take();
}

// Rank r gets the fold of 0 … r-1, and hands that of 0 … r on before it finishes its own result.
Program linear_scan(const Request& request) {
  Draft draft(request, Algorithm::linear);
  const int rank = request.rank;
  const auto step = static_cast<Step>(rank);
  const bool last = rank == request.size - 1;
  if (rank == 0) {
    if (!last) draft.send(step, 1, input(0));
    draft.reduce(step, output(0), {raw(input(0))}, true);
    return draft.take();
  }
  const Region before = draft.scratch(0);
  draft.recv(step - 1, rank - 1, before);
  const Source lower = rank == 1 ? raw(before) : partial(before);
  if (last) {
    draft.reduce(step, output(0), {lower, raw(input(0))}, true);
    return draft.take();
  }
  const Region so_far = draft.scratch(0);
  draft.reduce(step, so_far, {lower, raw(input(0))}, false);
  draft.send(step, rank + 1, so_far);
  draft.reduce(step, output(0), {partial(so_far)}, true);
  return draft.take();
}

Program linear_exclusive_scan(const Request& request) {
  Draft draft(request, Algorithm::linear);
  const int rank = request.rank;
  const auto step = static_cast<Step>(rank);
  const bool last = rank == request.size - 1;
  if (rank == 0) {
    if (!last) draft.send(step, 1, input(0));
    return draft.take();
  }
  const Region before = draft.scratch(0);
  draft.recv(step - 1, rank - 1, before);
  const Source lower = rank == 1 ? raw(before) : partial(before);
  // The sum to hand on is made first: in place the result overwrites this rank's input.
  if (!last) {
    const Region so_far = draft.scratch(0);
    draft.reduce(step, so_far, {lower, raw(input(0))}, false);
    draft.send(step, rank + 1, so_far);
  }
  draft.reduce(step, output(0), {lower}, true);
  return draft.take();
}

}  // namespace

std::span<const Entry> linear_rows() {
  static constexpr Entry kRows[] = {
      {Collective::broadcast, Algorithm::linear, linear_broadcast, kOrdered},
      {Collective::reduce, Algorithm::linear, linear_reduce},
      {Collective::gather, Algorithm::linear, linear_gather, kOrdered, kUneven},
      {Collective::scatter, Algorithm::linear, linear_scatter, kOrdered, kUneven},
      {Collective::barrier, Algorithm::linear, linear_barrier, kOrdered},
      {Collective::scan, Algorithm::linear, linear_scan, kOnward},
      {Collective::exclusive_scan, Algorithm::linear, linear_exclusive_scan, kOnward},
  };
  return kRows;
}

}  // namespace tutti::schedule::builders
