// bruck - ⌈lg n⌉ rounds for any n, by sending ever more at distances 1, 2, 4, …
//
//      all_gather, n = 5         round 0             round 1                round 2
//                                from r+1            from r+2               from r+4
//      rank 0 holds  0           0 1                 0 1 2 3                0 1 2 3 4
//
// Blocks land in their place of the output at once. Those that pass n-1 are two runs in memory and
// travel as two messages.
//
//      all_to_all: the block for rank r+i stands at place i; in round k all places with bit k set
//      go on to r+2^k. After all rounds place i holds what rank r-i sent. Equal blocks only, since
//      they pass through others.
#include "schedule/build/builders.hpp"
#include "schedule/build/parts.hpp"

namespace tutti::schedule::builders {
namespace {

// The extents of the blocks that leave `rank` in the round of this distance, and their places.
template <class Visit>
void each_leaving(int n, int rank, int distance, Visit visit) {
  for (int i = distance; i < n; ++i) {
    if (!(i & distance)) continue;
    // So far the block has moved by the lower bits of its place.
    const int source = wrap(rank - (i & (distance - 1)), n), target = wrap(source + i, n);
    visit(i, static_cast<std::uint64_t>(source) * static_cast<std::uint64_t>(n) +
                 static_cast<std::uint64_t>(target));
  }
}

Program bruck_all_gather(const Request& request) {
  const int n = request.size, rank = request.rank;
  Draft draft(request, Algorithm::bruck);
  if (!request.in_place) draft.copy(0, output(static_cast<Chunk>(rank)), input(0));
  Step step = 0;
  for (int distance = 1; distance < n; distance *= 2, step += 2) {
    const int count = std::min(distance, n - distance);
    each_run(n, rank, count, [&](Step run, Chunk first, Chunk blocks, Chunk) {
      draft.send(step + run, wrap(rank - distance, n),
                 distance == 1 ? input(0) : output(first, blocks));
    });
    each_run(n, rank + distance, count, [&](Step run, Chunk first, Chunk blocks, Chunk) {
      draft.recv(step + run, wrap(rank + distance, n), output(first, blocks));
    });
  }
  return draft.take();
}

Program bruck_all_to_all(const Request& request) {
  const int n = request.size, rank = request.rank;
  Draft draft(request, Algorithm::bruck);
  std::vector<Region> at;  // where the block of each place is now
  for (int i = 0; i < n; ++i) at.push_back(input(static_cast<Chunk>(wrap(rank + i, n))));
  Step step = 0;
  for (int distance = 1; distance < n; distance *= 2, ++step) {
    // Scattered blocks are packed, so that each round is one message.
    std::vector<Region> packed;
    each_leaving(n, rank, distance, [&](int i, std::uint64_t extent) {
      packed.push_back(draft.scratch(extent));
      draft.copy(step, packed.back(), at[static_cast<std::size_t>(i)]);
    });
    const auto blocks = static_cast<Chunk>(packed.size());
    std::vector<Region> came;
    each_leaving(n, wrap(rank - distance, n), distance, [&](int i, std::uint64_t extent) {
      came.push_back(draft.scratch(extent));
      at[static_cast<std::size_t>(i)] = came.back();
    });
    draft.send(step, wrap(rank + distance, n), piece(packed.front(), 0, blocks));
    draft.recv(step, wrap(rank - distance, n), piece(came.front(), 0, blocks));
  }
  for (int i = request.in_place ? 1 : 0; i < n; ++i) {
    const Region home = output(static_cast<Chunk>(wrap(rank - i, n)));
    draft.copy(step, home, at[static_cast<std::size_t>(i)]);
  }
  return draft.take();
}

}  // namespace

std::span<const Entry> bruck_rows() {
  static constexpr Entry kRows[] = {
      {Collective::all_gather, Algorithm::bruck, bruck_all_gather, kOrdered},
      {Collective::all_to_all, Algorithm::bruck, bruck_all_to_all, kOrdered},
  };
  return kRows;
}

}  // namespace tutti::schedule::builders
