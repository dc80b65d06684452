// slices - all_reduce of equal hosts: every rank owns a slice inside its host and reduces it with its likes
// of the other hosts, so that 2(H-1)/H of the array leaves a host, however many ranks it has.
//
//      inside                   between                  inside
//      0 - 1    slices a b      0   1                    0 - 1
//                               | a | b
//      2 - 3    slices a b      2   3                    2 - 3
//
// Each slice has a piece for every host. Pieces are folded inside in the order in which they go round
// between hosts, and handed out as they come back: wire and memory work at once.
#include "schedule/build/hosts.hpp"
#include "schedule/compose.hpp"

namespace tutti::schedule::builders {
namespace {

// Chunks lie piece by piece, and in a piece by slice.
struct Slices {
  const Hosts& hosts;

  Chunk pieces() const { return static_cast<Chunk>(hosts.count()); }
  Chunk each() const { return static_cast<Chunk>(hosts.local_size()); }
  Chunk mine() const { return static_cast<Chunk>(hosts.place); }
  // The first chunk of the piece of the host so far from this one.
  Chunk piece(int way) const {
    return static_cast<Chunk>(wrap(hosts.host + way, hosts.count())) * each();
  }
};

// A part of one step, about the piece that begins at `first`.
Placement on_piece(const Slices& slices, Chunk first, Step step, Region input, Region output) {
  return {.ranks = slices.hosts.local(),
          .first_step = step,
          .input = input,
          .output = output,
          .first_extent = first};
}

}  // namespace

Program slices_all_reduce(const Request& request, const Hosts& hosts) {
  const Slices slices{hosts};
  const bool as_tree = request.order == ReductionOrder::tree;
  const int n = hosts.count();
  Draft whole(request, Algorithm::hierarchical, slices.pieces() * slices.each());

  // A ring sends its own piece first and then those before it; pairs the one after its own, and its own last.
  Request part = hosts.inside(Collective::reduce_scatter, request.in_place);
  part.order = request.order;
  for (int k = 0; k < n; ++k) {
    const Chunk piece = slices.piece(as_tree ? k + 1 : -k);
    Placement placement =
        on_piece(slices, piece, static_cast<Step>(k), input(piece), output(piece + slices.mine()));
    placement.finish = false;
    append(whole.program(), direct_reduce_scatter(part), placement);
  }

  std::vector<int> rail;
  for (const auto& list : hosts.members)
    rail.push_back(list[static_cast<std::size_t>(hosts.place)]);
  part = hosts.between(Collective::all_reduce, 0);
  part.order = request.order;
  const Region slice = output(slices.mine());
  append(whole.program(), as_tree ? pairwise_all_reduce(part) : ring_all_reduce(part),
         {.ranks = rail,
          .first_step = static_cast<Step>(n),
          .input = slice,
          .output = slice,
          .stride = slices.each(),
          .first_extent = slices.mine(),
          .raw = false});

  part = hosts.inside(Collective::all_gather, true);
  for (int k = 0; k < n; ++k) {
    const Chunk piece = slices.piece((as_tree ? 0 : 1) - k);
    append(whole.program(), direct_all_gather(part),
           on_piece(slices, piece, static_cast<Step>(n + 2 * (n - 1) + k),
                    output(piece + slices.mine()), output(piece)));
  }
  return whole.take();
}

}  // namespace tutti::schedule::builders
