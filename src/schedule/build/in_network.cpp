// in_network - a switch folds what all ranks send, in their order, and returns the result to each.
//
//           switch            step 0: everyone's input goes up; the switch folds them
//         /  |  |  \          step 1: the result comes down
//        0   1  2   3
//
// The switch is rank n of n: it owns no data and calls nothing (`tutti switch`). A rank sends S bytes and
// receives S, at the same time, where a ring sends 2(n-1)/n of them: for that the switch's own link has to be
// n times as wide. What ranks do when it is lost is the engine's concern (engine/switched_run.hpp).
#include "schedule/build/builders.hpp"

namespace tutti::schedule::builders {
namespace {

Program of_switch(const Request& request) {
  Draft draft(request, Algorithm::in_network);
  std::vector<Source> sources;
  for (int rank = 0; rank < request.size; ++rank) {
    const Region inbox = draft.scratch(0);
    draft.recv(0, rank, inbox);
    sources.push_back(raw(inbox));
  }
  const Region result = draft.scratch(0);
  draft.reduce(0, result, std::move(sources), true);
  for (int rank = 0; rank < request.size; ++rank) draft.send(1, rank, result);
  return draft.take();
}

Program in_network_all_reduce(const Request& request) {
  if (request.size == 1) return alone(request, Algorithm::in_network);
  if (request.rank == request.size) return of_switch(request);
  Draft draft(request, Algorithm::in_network);
  draft.send(0, request.size, input(0));
  draft.recv(1, request.size, output(0));
  return draft.take();
}

}  // namespace

std::span<const Entry> in_network_rows() {
  static constexpr Entry kRows[] = {
      {Collective::all_reduce, Algorithm::in_network, in_network_all_reduce, kOrdered, kEven,
       nullptr, nullptr, kBySwitch},
  };
  return kRows;
}

}  // namespace tutti::schedule::builders
