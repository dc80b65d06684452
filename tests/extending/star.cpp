// star - a toy algorithm, as docs/extending.md shows it: all_reduce through rank 0.
//
//      1   2        step 0: everybody sends its input to rank 0, which folds all in rank order
//       \ /         step 1: rank 0 sends the result to everybody
//        0
#include "extending/toys.hpp"
#include "schedule/build/draft.hpp"

namespace tutti::toys {
namespace {

using namespace schedule;
using namespace schedule::builders;

Program star_all_reduce(const Request& request) {
  Draft draft(request, Algorithm::custom);
  if (request.rank != 0) {
    draft.send(0, 0, input(0));
    draft.recv(1, 0, output(0));
    return draft.take();
  }
  std::vector<Source> all{raw(input(0))};
  for (int peer = 1; peer < request.size; ++peer) {
    const Region inbox = draft.scratch(0);
    draft.recv(0, peer, inbox);
    all.push_back(raw(inbox));
  }
  draft.reduce(0, output(0), all, true);
  for (int peer = 1; peer < request.size; ++peer) draft.send(1, peer, output(0));
  return draft.take();
}

}  // namespace

std::span<const Entry> star_rows() {
  static constexpr Entry kRows[] = {
      {Collective::all_reduce, Algorithm::custom, star_all_reduce, kOrdered},
  };
  return kRows;
}

}  // namespace tutti::toys
