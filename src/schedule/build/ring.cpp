// ring - each rank talks to its two neighbours only; all links are busy all the time.
//
//        0 --> 1          all_reduce: every chunk travels once round to be summed (n-1 steps), and
//        ^     |          once more as the result (n-1 steps). In step k rank r sends chunk r-k,
//        |     v          receives chunk r-k-1 and adds its own.
//        3 <-- 2
//
//      broadcast and reduce go along a chain in several chunks, so that all links work at once:
//
//        root --c0--> 1 --c0--> 2 --c0--> 3
//             --c1-->   --c1-->   --c1-->
#include "schedule/build/walk.hpp"

namespace tutti::schedule::builders {
namespace {

// Chunks of the pipelined chains. A chain of n ranks takes n + kChain - 2 steps of 1/kChain each.
constexpr Chunk kChain = 8;

struct Ring {
  int n, rank, next, prev;
  explicit Ring(const Request& request)
      : n(request.size), rank(request.rank), next(wrap(rank + 1, n)), prev(wrap(rank - 1, n)) {}
  Chunk chunk(int c) const { return static_cast<Chunk>(wrap(c, n)); }
};

// n-1 steps in which the block `own` and what comes after it pass all ranks. `first` is where the
// block that leaves first is read from.
void pass_round(Draft& draft, const Ring& ring, int own, Region first, Step base) {
  for (int k = 0; k < ring.n - 1; ++k) {
    const Step step = base + static_cast<Step>(k);
    draft.send(step, ring.next, k == 0 ? first : output(ring.chunk(own - k)));
    draft.recv(step, ring.prev, output(ring.chunk(own - k - 1)));
  }
}

}  // namespace

Program ring_all_reduce(const Request& request) {
  if (request.size == 1) return alone(request, Algorithm::ring);
  const Ring ring(request);
  Draft draft(request, Algorithm::ring, static_cast<Chunk>(ring.n));
  for (int k = 0; k < ring.n - 1; ++k) {
    const auto step = static_cast<Step>(k);
    const Chunk out = ring.chunk(ring.rank - k), in = ring.chunk(ring.rank - k - 1);
    const Region inbox = draft.scratch(in);
    draft.send(step, ring.next, k == 0 ? input(out) : output(out));
    draft.recv(step, ring.prev, inbox);
    draft.reduce(step, output(in), {k == 0 ? raw(inbox) : partial(inbox), raw(input(in))},
                 k == ring.n - 2);
  }
  const int own = ring.rank + 1;
  pass_round(draft, ring, own, output(ring.chunk(own)), static_cast<Step>(ring.n - 1));
  return draft.take();
}

// As above, one chunk further back, so that the last fold is that of the own part. The input is not
// ours to write, hence the partial folds stay where they arrived.
Program ring_reduce_scatter(const Request& request) {
  if (request.size == 1) return alone(request, Algorithm::ring);
  const Ring ring(request);
  Draft draft(request, Algorithm::ring);
  Region outbox = input(ring.chunk(ring.rank - 1));
  for (int k = 0; k < ring.n - 1; ++k) {
    const auto step = static_cast<Step>(k);
    const bool last = k == ring.n - 2;
    const Chunk in = ring.chunk(ring.rank - k - 2);
    const Region inbox = draft.scratch(in);
    draft.send(step, ring.next, outbox);
    draft.recv(step, ring.prev, inbox);
    draft.reduce(step, last ? output(0) : inbox,
                 {k == 0 ? raw(inbox) : partial(inbox), raw(input(in))}, last);
    outbox = inbox;
  }
  return draft.take();
}

Program ring_all_gather(const Request& request) {
  const Ring ring(request);
  Draft draft(request, Algorithm::ring);
  if (!request.in_place) draft.copy(0, output(ring.chunk(ring.rank)), input(0));
  pass_round(draft, ring, ring.rank, input(0), 0);
  return draft.take();
}

namespace {

Program ring_broadcast(const Request& request) {
  Draft draft(request, Algorithm::ring, kChain);
  const int n = request.size, place = wrap(request.rank - request.root, n);
  const int before = wrap(request.rank - 1, n), after = wrap(request.rank + 1, n);
  for (Chunk c = 0; c < kChain; ++c) {
    const Step step = static_cast<Step>(place) + c;
    if (place > 0) draft.recv(step - 1, before, output(c));
    if (place < n - 1) draft.send(step, after, output(c));
  }
  return draft.take();
}

// The chain of broadcast backwards: the farthest rank begins, the root ends.
Program ring_reduce(const Request& request) {
  Draft draft(request, Algorithm::ring, kChain);
  const int n = request.size, place = wrap(request.rank - request.root, n);
  const int before = wrap(request.rank - 1, n), after = wrap(request.rank + 1, n);
  const bool is_root = place == 0, is_end = place == n - 1;
  for (Chunk c = 0; c < kChain; ++c) {
    const Step step = static_cast<Step>(n - 1 - place) + c;
    Region mine = is_root ? output(c) : input(c);
    if (n == 1) draft.reduce(step, mine, {raw(input(c))}, true);
    if (!is_end) {
      const Region inbox = draft.scratch(c);
      draft.recv(step - 1, after, inbox);
      if (!is_root) mine = inbox;
      const bool from_end = place == n - 2;
      draft.reduce(step, mine, {raw(input(c)), from_end ? raw(inbox) : partial(inbox)}, is_root);
    }
    if (!is_root) draft.send(step, before, mine);
  }
  return draft.take();
}

}  // namespace

std::span<const Entry> ring_rows() {
  static constexpr Entry kRows[] = {
      {Collective::broadcast, Algorithm::ring, walking<ring_broadcast>, kOrdered},
      {Collective::reduce, Algorithm::ring, walking<ring_reduce>},
      {Collective::all_reduce, Algorithm::ring, walking<ring_all_reduce>},
      {Collective::all_gather, Algorithm::ring, walking<ring_all_gather>, kOrdered, kUneven},
      {Collective::reduce_scatter, Algorithm::ring, walking<ring_reduce_scatter>, kAnyOrder,
       kUneven},
  };
  return kRows;
}

}  // namespace tutti::schedule::builders
