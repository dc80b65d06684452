// recursive_doubling - partners at distance 1, 2, 4, … exchange all that they have.
//
//      0 <-> 1   2 <-> 3   4 <-> 5   6 <-> 7      step 0: distance 1
//      0 <-----> 2 …       4 <-----> 6 …          step 1: distance 2
//      0 <---------------> 4 …                    step 2: distance 4
//
// ⌈lg n⌉ steps, each with the whole sum: for small messages; of 2^k ranks in tree order. Ranks beyond the
// largest power of two join through a partner (core_and_extras.hpp). barrier: in step k rank r tells r + 2^k, any n.
// scan: in step k rank r gives the sum of the last 2^k ranks to r + 2^k.
#include <algorithm>

#include "schedule/build/builders.hpp"
#include "schedule/build/core_and_extras.hpp"
#include "schedule/build/parts.hpp"

namespace tutti::schedule::builders {
namespace {

// Hillis and Steele's scan of `size` places; `own` is this place's raw operand.
void scan_places(Draft& draft, int place, int size, int first_rank, Region own, Step base) {
  Source sum = raw(own);
  Step step = base;
  for (int distance = 1; distance < size; distance *= 2, ++step) {
    const Source mine = sum;
    if (place + distance < size) {
      draft.send(step, first_rank + place + distance, mine.region);
    }
    if (place - distance < 0) continue;
    const Region inbox = draft.scratch(0);
    draft.recv(step, first_rank + place - distance, inbox);
    const bool from_raw = distance == 1 || place == distance;
    const Source before = from_raw ? raw(inbox) : partial(inbox);
    // All lower places are in it now; the finished result must not be handed on, the sum may be.
    const bool complete = place < 2 * distance;
    const bool wanted = place + 2 * distance < size;
    if (complete && !wanted) {
      draft.reduce(step, output(0), {before, mine}, true);
      continue;
    }
    sum = partial(draft.scratch(0));
    draft.reduce(step, sum.region, {before, mine}, false);
    if (complete) draft.reduce(step, output(0), {sum}, true);
  }
  // In place this overwrites what the sends above have read.
  if (place == 0) draft.reduce(base, output(0), {sum}, true);
}

}  // namespace

void disseminate(Draft& draft, int n, int place, const std::function<int(int)>& rank_at,
                 Region token, Step base) {
  if (n == 1) return;
  // What comes in lands beside the token and is copied onto it after the token has gone out: a send
  // waits for all that came before, and no two ranks wait for each other's send.
  const Region inbox = draft.scratch(0);
  Step step = base;
  for (int distance = 1; distance < n; distance *= 2, ++step) {
    draft.send(step, rank_at(wrap(place + distance, n)), token);
    draft.recv(step, rank_at(wrap(place - distance, n)), inbox);
    draft.copy(step, token, inbox);
  }
}

void double_blocks(Draft& draft, const Core& core, Step base) {
  Step step = base;
  for (int distance = 1; distance < core.size; distance *= 2, step += 2) {
    const int partner = core.rank ^ distance;
    const auto first = [&](int rank) { return rank & ~(distance - 1); };
    const auto exchange = [&](int shift, Step at) {
      const auto run = [&](int rank) {  // what `rank` holds of core (or extra) blocks
        const int from = first(rank) + shift;
        const int count = std::min(distance, core.n - from);
        return output(static_cast<Chunk>(from), static_cast<Chunk>(std::max(count, 0)));
      };
      if (run(core.rank).count > 0) draft.send(at, partner, run(core.rank));
      if (run(partner).count > 0) draft.recv(at, partner, run(partner));
    };
    exchange(0, step);
    if (core.size < core.n) exchange(core.size, step + 1);
  }
}

namespace {

Program recursive_doubling_all_reduce(const Request& request) {
  if (request.size == 1) return alone(request, Algorithm::recursive_doubling);
  const Core core(request.size, request.rank);
  Draft draft(request, Algorithm::recursive_doubling);
  const Step last = core.rounds() + 1;
  if (core.is_extra()) {
    draft.send(0, core.other(), input(0));
    draft.recv(last, core.other(), output(0));
    return draft.take();
  }
  Source sum = raw(input(0));
  if (core.has_extra()) {
    const Region inbox = draft.scratch(0);
    draft.recv(0, core.other(), inbox);
    draft.reduce(0, output(0), {sum, raw(inbox)}, false);
    sum = partial(output(0));
  }
  for (Step k = 0; k < core.rounds(); ++k) {
    const int partner = core.rank ^ (1 << k);
    const Region inbox = draft.scratch(0);
    draft.send(k + 1, partner, sum.region);
    draft.recv(k + 1, partner, inbox);
    const Source theirs = k == 0 && !core.has_extra(partner) ? raw(inbox) : partial(inbox);
    // The lower rank's sum first: both partners compute the same formula, bit for bit.
    draft.reduce(k + 1, output(0),
                 core.rank < partner ? std::vector{sum, theirs} : std::vector{theirs, sum},
                 k + 1 == core.rounds());
    sum = partial(output(0));
  }
  if (core.has_extra()) draft.send(last, core.other(), output(0));
  return draft.take();
}

Program recursive_doubling_all_gather(const Request& request) {
  const Core core(request.size, request.rank);
  Draft draft(request, Algorithm::recursive_doubling);
  const Step last = 1 + 2 * core.rounds();
  const auto all = output(0, static_cast<Chunk>(request.size));
  if (core.is_extra()) {
    draft.send(0, core.other(), input(0));
    draft.recv(last, core.other(), all);
    return draft.take();
  }
  if (!request.in_place) draft.copy(0, output(static_cast<Chunk>(request.rank)), input(0));
  if (core.has_extra()) {
    draft.recv(0, core.other(), output(static_cast<Chunk>(core.other())));
  }
  double_blocks(draft, core, 1);
  if (core.has_extra()) draft.send(last, core.other(), all);
  return draft.take();
}

Program recursive_doubling_barrier(const Request& request) {
  Draft draft(request, Algorithm::recursive_doubling);
  if (request.size == 1) return draft.take();
  const Region token = draft.scratch(0);
  disseminate(
      draft, request.size, request.rank, [](int rank) { return rank; }, token, 0);
  return draft.take();
}

Program recursive_doubling_scan(const Request& request) {
  Draft draft(request, Algorithm::recursive_doubling);
  scan_places(draft, request.rank, request.size, 0, input(0), 0);
  return draft.take();
}

// Everyone's input moves up by one rank; then ranks 1 … n-1 scan what they got.
Program recursive_doubling_exclusive_scan(const Request& request) {
  Draft draft(request, Algorithm::recursive_doubling);
  if (request.rank + 1 < request.size) draft.send(0, request.rank + 1, input(0));
  if (request.rank == 0) return draft.take();
  const Region shifted = draft.scratch(0);
  draft.recv(0, request.rank - 1, shifted);
  scan_places(draft, request.rank - 1, request.size - 1, 1, shifted, 1);
  return draft.take();
}

}  // namespace

std::span<const Entry> recursive_doubling_rows() {
  static constexpr Entry kRows[] = {
      {Collective::all_reduce, Algorithm::recursive_doubling, recursive_doubling_all_reduce,
       kAnyOrder, kEven, nullptr, makes_cube},
      {Collective::all_gather, Algorithm::recursive_doubling, recursive_doubling_all_gather,
       kOrdered},
      {Collective::barrier, Algorithm::recursive_doubling, recursive_doubling_barrier, kOrdered},
      {Collective::scan, Algorithm::recursive_doubling, recursive_doubling_scan},
      {Collective::exclusive_scan, Algorithm::recursive_doubling,
       recursive_doubling_exclusive_scan},
  };
  return kRows;
}

}  // namespace tutti::schedule::builders
