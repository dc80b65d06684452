// hypercube - all_gather of 2^k ranks, one dimension of the cube after the other: blocks double.
//
//          6-------7        step 0: along x, single blocks     (0-1 2-3 4-5 6-7)
//         /|      /|        step 1: along y, pairs of blocks   (0-2 1-3 4-6 5-7)
//        4-------5 |        step 2: along z, four blocks       (0-4 1-5 2-6 3-7)
//        | 2-----|-3
//        |/      |/         Every rank sends (n-1)/n of the result in lg n messages.
//        0-------1
#include "schedule/build/builders.hpp"
#include "schedule/build/parts.hpp"

namespace tutti::schedule::builders {
namespace {

Program hypercube_all_gather(const Request& request) {
  Draft draft(request, Algorithm::hypercube);
  if (!request.in_place) draft.copy(0, output(static_cast<Chunk>(request.rank)), input(0));
  double_blocks(draft, Core(request.size, request.rank), 0);
  return draft.take();
}

}  // namespace

std::span<const Entry> hypercube_rows() {
  static constexpr Entry kRows[] = {
      {Collective::all_gather, Algorithm::hypercube, hypercube_all_gather, kOrdered, kEven,
       makes_cube},
  };
  return kRows;
}

}  // namespace tutti::schedule::builders
