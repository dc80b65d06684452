// pairwise - in step k every rank sends to the one k after it and hears from the one k before it:
// n-1 steps, each a perfect exchange, every block sent once.
//
//      step 1:  0 -> 1 -> 2 -> 3 -> 0      step 2:  0 <-> 2, 1 <-> 3      step 3:  0 -> 3 -> 2 …
//
// reduce_scatter: raw parts go straight to their owner, who folds all of them at once, in rank or tree
// order, at a ring's cost. all_reduce: that, and a ring's all_gather.
#include <numeric>

#include "schedule/build/builders.hpp"
#include "schedule/compose.hpp"

namespace tutti::schedule::builders {
namespace {

Program pairwise_all_to_all(const Request& request) {
  const int n = request.size, rank = request.rank;
  const auto own = static_cast<Chunk>(rank);
  Draft draft(request, Algorithm::pairwise);
  if (!request.in_place) draft.copy(0, output(own), input(own));
  std::vector<std::pair<int, Region>> waiting;  // in place: blocks that cannot land yet
  for (int k = 1; k < n; ++k) {
    const auto step = static_cast<Step>(k - 1);
    const int to = wrap(rank + k, n), from = wrap(rank - k, n);
    Region landing = output(static_cast<Chunk>(from));
    if (request.in_place) {
      landing = draft.scratch(std::uint64_t{landing.first} * static_cast<std::uint64_t>(n) + own);
      waiting.emplace_back(from, landing);
    }
    draft.send(step, to, input(static_cast<Chunk>(to)));
    draft.recv(step, from, landing);
  }
  for (const auto& [from, block] : waiting) {
    draft.copy(static_cast<Step>(n - 1), output(static_cast<Chunk>(from)), block);
  }
  return draft.take();
}

Program pairwise_reduce_scatter(const Request& request) {
  const int n = request.size, rank = request.rank;
  const auto own = static_cast<Chunk>(rank);
  Draft draft(request, Algorithm::pairwise);
  std::vector<Source> sources(static_cast<std::size_t>(n), raw(input(own)));
  for (int k = 1; k < n; ++k) {
    const auto step = static_cast<Step>(k - 1);
    const int to = wrap(rank + k, n), from = wrap(rank - k, n);
    const Region inbox = draft.scratch(own);
    draft.send(step, to, input(static_cast<Chunk>(to)));
    draft.recv(step, from, inbox);
    sources[static_cast<std::size_t>(from)] = raw(inbox);
  }
  draft.reduce(n > 1 ? static_cast<Step>(n - 2) : 0, output(0), std::move(sources), true);
  return draft.take();
}

}  // namespace

Program pairwise_all_reduce(const Request& request) {
  const int n = request.size;
  const auto own = static_cast<Chunk>(request.rank);
  std::vector<int> everyone(static_cast<std::size_t>(n));
  std::iota(everyone.begin(), everyone.end(), 0);
  Request part = request;
  Draft whole(request, Algorithm::pairwise, static_cast<Chunk>(n));
  Placement placement{.ranks = everyone, .input = input(0), .output = output(own)};

  part.collective = Collective::reduce_scatter;
  append(whole.program(), pairwise_reduce_scatter(part), placement);

  part.collective = Collective::all_gather;
  part.in_place = true;
  placement.first_step = static_cast<Step>(n - 1);
  placement.input = output(own);
  placement.output = output(0);
  append(whole.program(), ring_all_gather(part), placement);
  return whole.take();
}

std::span<const Entry> pairwise_rows() {
  static constexpr Entry kRows[] = {
      {Collective::all_reduce, Algorithm::pairwise, pairwise_all_reduce, kOrdered},
      {Collective::reduce_scatter, Algorithm::pairwise, pairwise_reduce_scatter, kOrdered, kUneven},
      {Collective::all_to_all, Algorithm::pairwise, pairwise_all_to_all, kOrdered, kUneven},
  };
  return kRows;
}

}  // namespace tutti::schedule::builders
