// halving_doubling - Rabenseifner's: halve and sum until each rank owns one summed piece, then
// double the pieces until everyone has all. lg n steps each way, and no more bytes than a ring.
//
//      4 ranks, 4 pieces       step 1, distance 1       step 2, distance 2       and back again
//
//      0: a b c d              0: [a b]  with 1         0: [a]  with 2           [a b] -> [a b c d]
//      1: a b c d              1: [c d]  with 0         1: [c]  with 3
//      2: a b c d              2: [a b]  with 3         2: [b]  with 0
//      3: a b c d              3: [c d]  with 2         3: [d]  with 1
//
// The nearest partner first: it gets the most bytes, and mostly sits on the same host, so that what leaves a
// host of 2^j ranks is what would leave one rank; and of 2^k ranks sums are in tree order. Where pieces have
// an owner (reduce_scatter, and reduce on its way up) the farthest comes first, so that rank r ends with
// piece r.
//
// Ranks beyond the largest power of two join through a partner (core_and_extras.hpp).
#include "schedule/build/builders.hpp"
#include "schedule/build/core_and_extras.hpp"

namespace tutti::schedule::builders {
namespace {

// What a rank has summed so far: the pieces from `first` on, in `region`.
struct Held {
  Region region;
  Chunk first = 0;
  bool is_raw = true;

  Region at(Chunk from, Chunk count) const { return piece(region, from - first, count); }
};

Source operand(const Region& region, bool is_raw) { return is_raw ? raw(region) : partial(region); }

enum class Partners { nearest_first, farthest_first };

// `into(inbox, first, count, last)` says where a round's sum goes. Partner p is rank_at(p). Returns the piece
// that this rank ends with.
template <class RankAt, class Into>
Chunk halve(Draft& draft, const Core& core, Partners partners, RankAt rank_at, Held held, Step base,
            Into into) {
  auto count = static_cast<Chunk>(core.size);
  Chunk first = 0;
  for (Step round = 0; round < core.rounds(); ++round, ++base) {
    count /= 2;
    const Step bit = partners == Partners::nearest_first ? round : core.rounds() - 1 - round;
    const int partner = core.rank ^ (1 << bit);
    const bool low = core.rank < partner;
    const Chunk mine = low ? first : first + count, theirs = low ? first + count : first;
    const Region inbox = draft.scratch(mine, count);
    draft.send(base, rank_at(partner), held.at(theirs, count));
    draft.recv(base, rank_at(partner), inbox);
    const bool last = count == 1;
    const Source a = operand(held.at(mine, count), held.is_raw);
    const Source b = operand(inbox, round == 0 && !core.has_extra(partner));
    const Region sum = into(inbox, mine, count, last);
    draft.reduce(base, sum, low ? std::vector{a, b} : std::vector{b, a}, last);
    held = {sum, mine, false};
    first = mine;
  }
  return first;
}

// Adds the extra's input to the own one, if there is an extra; `sum` has room for all pieces.
Held take_extra(Draft& draft, const Core& core, int extra_rank, Region sum) {
  const auto all = static_cast<Chunk>(core.size);
  if (!core.has_extra()) return {input(0, all), 0, true};
  const Region inbox = draft.scratch(0, all);
  draft.recv(0, extra_rank, inbox);
  draft.reduce(0, sum, {raw(input(0, all)), raw(inbox)}, false);
  return {sum, 0, false};
}

Program halving_doubling_all_reduce(const Request& request) {
  if (request.size == 1) return alone(request, Algorithm::halving_doubling);
  const Core core(request.size, request.rank);
  const auto all = static_cast<Chunk>(core.size);
  const Step last = 1 + 2 * core.rounds();
  Draft draft(request, Algorithm::halving_doubling, all);
  if (core.is_extra()) {
    draft.send(0, core.other(), input(0, all));
    draft.recv(last, core.other(), output(0, all));
    return draft.take();
  }
  const Held held = take_extra(draft, core, core.other(), output(0, all));
  Chunk first = halve(
      draft, core, Partners::nearest_first, [](int rank) { return rank; }, held, 1,
      [](Region, Chunk from, Chunk count, bool) { return output(from, count); });
  Step step = 1 + core.rounds();
  for (Chunk count = 1; count < all; count *= 2, ++step) {
    const int partner = core.rank ^ (core.size / 2 / static_cast<int>(count));
    draft.send(step, partner, output(first, count));
    draft.recv(step, partner, output(first ^ count, count));
    first &= ~count;
  }
  if (core.has_extra()) draft.send(last, core.other(), output(0, all));
  return draft.take();
}

// Powers of two only. The input is not ours to write: sums stay where the partner's half arrived.
Program halving_doubling_reduce_scatter(const Request& request) {
  if (request.size == 1) return alone(request, Algorithm::halving_doubling);
  const Core core(request.size, request.rank);
  Draft draft(request, Algorithm::halving_doubling);
  halve(
      draft, core, Partners::farthest_first, [](int rank) { return rank; },
      {input(0, static_cast<Chunk>(core.size)), 0, true}, 0,
      [](Region inbox, Chunk, Chunk, bool last) { return last ? output(0) : inbox; });
  return draft.take();
}

// Halving, then the pieces go up a binomial tree to the root, which stands at place 0.
Program halving_doubling_reduce(const Request& request) {
  if (request.size == 1) return alone(request, Algorithm::halving_doubling);
  const Core core(request.size, wrap(request.rank - request.root, request.size));
  const auto rank_at = [&](int place) { return wrap(place + request.root, request.size); };
  const auto all = static_cast<Chunk>(core.size);
  Draft draft(request, Algorithm::halving_doubling, all);
  if (core.is_extra()) {
    draft.send(0, rank_at(core.other()), input(0, all));
    return draft.take();
  }
  const Region sum = core.rank == 0 ? output(0, all) : draft.scratch(0, all);
  const Held held = take_extra(draft, core, rank_at(core.other()), sum);
  halve(draft, core, Partners::farthest_first, rank_at, held, 1,
        [&](Region, Chunk first, Chunk count, bool) { return piece(sum, first, count); });
  Step step = 1 + core.rounds();
  for (int distance = 1; distance < core.size; distance *= 2, ++step) {
    const auto count = static_cast<Chunk>(distance), own = static_cast<Chunk>(core.rank);
    if (core.rank & distance) {
      draft.send(step, rank_at(core.rank - distance), piece(sum, own, count));
      break;
    }
    draft.recv(step, rank_at(core.rank + distance), piece(sum, own + count, count));
  }
  return draft.take();
}

}  // namespace

std::span<const Entry> halving_doubling_rows() {
  static constexpr Entry kRows[] = {
      {Collective::reduce, Algorithm::halving_doubling, halving_doubling_reduce},
      {Collective::all_reduce, Algorithm::halving_doubling, halving_doubling_all_reduce, kAnyOrder,
       kEven, nullptr, makes_cube},
      {Collective::reduce_scatter, Algorithm::halving_doubling, halving_doubling_reduce_scatter,
       kAnyOrder, kEven, makes_cube},
  };
  return kRows;
}

}  // namespace tutti::schedule::builders
