// binomial_tree - the reach doubles with every step.
//
//      places 0 … 7, the root at place 0          place v's parent: v without its lowest set bit
//                                                 its subtree: the places v … v + lowest bit - 1
//            0
//          / | \            broadcast, scatter: the longest edge first (0-4, then 0-2 4-6, then
//         4  2  1           0-1 2-3 4-5 6-7); reduce, gather: the other way round
//        /|  |
//       6 5  3
//       |
//       7
//
// Sums of subtrees are those of ReductionOrder::tree where the root stands at rank 0: in that order it does,
// and sends the result on to whose it is.
//
// gather and scatter pass whole subtrees through ranks that do not own them, who must know their
// sizes: equal parts only.
#include <algorithm>
#include <bit>

#include "schedule/build/builders.hpp"
#include "schedule/build/parts.hpp"
#include "schedule/build/walk.hpp"

namespace tutti::schedule::builders {
namespace {

struct Tree {
  int n, root, place;
  Step rounds;  // ⌈lg n⌉
  explicit Tree(const Request& request, int root_rank)
      : n(request.size),
        root(root_rank),
        place(wrap(request.rank - root_rank, n)),
        rounds(static_cast<Step>(std::bit_width(static_cast<unsigned>(n - 1)))) {}

  int rank_at(int at) const { return wrap(root + at, n); }
  bool is_root() const { return place == 0; }
  // The round of the edge to the parent: the lowest set bit's number.
  Step edge() const { return static_cast<Step>(std::countr_zero(static_cast<unsigned>(place))); }
  int parent() const { return rank_at(place & (place - 1)); }
  // Edges to children are those of all rounds below the own, as far as there are ranks.
  Step child_edges() const {
    Step count = is_root() ? rounds : edge();
    while (count > 0 && place + (1 << (count - 1)) >= n) --count;
    return count;
  }
  int child(Step j) const { return rank_at(place + (1 << j)); }
  bool child_is_leaf(Step j) const { return j == 0 || place + (1 << j) + 1 >= n; }
  // How many places the subtree of child j, or of this place, has.
  int child_size(Step j) const { return std::min(1 << j, n - place - (1 << j)); }
  int size() const { return is_root() ? n : std::min(1 << edge(), n - place); }
};

// Folds the children's partial sums and the own input into `into`, in one go.
void fold_up(Draft& draft, const Tree& tree, Region into) {
  std::vector<Source> sources{raw(input(0))};
  Step step = 0;
  for (Step j = 0; j < tree.child_edges(); ++j) {
    const Region inbox = draft.scratch(0);
    draft.recv(j, tree.child(j), inbox);
    sources.push_back(tree.child_is_leaf(j) ? raw(inbox) : partial(inbox));
    step = j;
  }
  draft.reduce_onto_first(step, into, std::move(sources), tree.is_root());
}

void send_down(Draft& draft, const Tree& tree, Region what, Step base) {
  if (!tree.is_root()) draft.recv(base + tree.rounds - 1 - tree.edge(), tree.parent(), what);
  for (Step j = tree.child_edges(); j-- > 0;) {
    draft.send(base + tree.rounds - 1 - j, tree.child(j), what);
  }
}

// Scratch for a subtree's blocks, in the order of places.
Region subtree_scratch(Draft& draft, const Tree& tree) {
  Region first = draft.scratch(static_cast<std::uint64_t>(tree.rank_at(tree.place)));
  for (int i = 1; i < tree.size(); ++i) {
    draft.scratch(static_cast<std::uint64_t>(tree.rank_at(tree.place + i)));
  }
  first.count = static_cast<Chunk>(tree.size());
  return first;
}

}  // namespace

Program binomial_tree_broadcast(const Request& request) {
  Draft draft(request, Algorithm::binomial_tree);
  send_down(draft, Tree(request, request.root), output(0), 0);
  return draft.take();
}

Program binomial_tree_reduce(const Request& request) {
  const int top = request.order == ReductionOrder::tree ? 0 : request.root;
  const Tree tree(request, top);
  Draft draft(request, Algorithm::binomial_tree);
  if (tree.is_root()) {
    const Region sum = request.rank == request.root ? output(0) : draft.scratch(0);
    fold_up(draft, tree, sum);
    if (request.rank != request.root) draft.send(tree.rounds, request.root, sum);
  } else if (tree.child_edges() == 0) {
    draft.send(tree.edge(), tree.parent(), input(0));
  } else {
    const Region sum = draft.scratch(0);
    fold_up(draft, tree, sum);
    draft.send(tree.edge(), tree.parent(), sum);
  }
  if (request.rank == request.root && top != request.root) draft.recv(tree.rounds, top, output(0));
  return draft.take();
}

namespace {

bool always(const Request&) { return true; }

Program binomial_tree_all_reduce(const Request& request) {
  const Tree tree(request, 0);
  Draft draft(request, Algorithm::binomial_tree);
  const bool is_leaf = !tree.is_root() && tree.child_edges() == 0;
  if (!is_leaf) fold_up(draft, tree, output(0));
  if (!tree.is_root()) draft.send(tree.edge(), tree.parent(), is_leaf ? input(0) : output(0));
  send_down(draft, tree, output(0), tree.rounds);
  return draft.take();
}

Program binomial_tree_gather(const Request& request) {
  const Tree tree(request, request.root);
  Draft draft(request, Algorithm::binomial_tree);
  if (!tree.is_root() && tree.child_edges() == 0) {
    draft.send(2 * tree.edge(), tree.parent(), input(0));
    return draft.take();
  }
  Region held;  // of ranks on the way: their subtree's blocks
  if (!tree.is_root()) {
    held = subtree_scratch(draft, tree);
    draft.copy(0, piece(held, 0), input(0));
  } else if (!request.in_place) {
    draft.copy(0, output(static_cast<Chunk>(request.rank)), input(0));
  }
  for (Step j = 0; j < tree.child_edges(); ++j) {
    const int offset = 1 << j;
    each_run(tree.n, tree.root + tree.place + offset, tree.child_size(j),
             [&](Step run, Chunk first, Chunk count, Chunk at) {
               const Region there = piece(held, static_cast<Chunk>(offset) + at, count);
               draft.recv(2 * j + run, tree.child(j),
                          tree.is_root() ? output(first, count) : there);
             });
  }
  if (tree.is_root()) return draft.take();
  each_run(tree.n, request.rank, tree.size(), [&](Step run, Chunk, Chunk count, Chunk at) {
    draft.send(2 * tree.edge() + run, tree.parent(), piece(held, at, count));
  });
  return draft.take();
}

Program binomial_tree_scatter(const Request& request) {
  const Tree tree(request, request.root);
  Draft draft(request, Algorithm::binomial_tree);
  const auto down = [&](Step edge) { return 2 * (tree.rounds - 1 - edge); };
  if (!tree.is_root() && tree.child_edges() == 0) {
    draft.recv(down(tree.edge()), tree.parent(), output(0));
    return draft.take();
  }
  Region held;
  if (!tree.is_root()) {
    held = subtree_scratch(draft, tree);
    each_run(tree.n, request.rank, tree.size(), [&](Step run, Chunk, Chunk count, Chunk at) {
      draft.recv(down(tree.edge()) + run, tree.parent(), piece(held, at, count));
    });
  }
  for (Step j = tree.child_edges(); j-- > 0;) {
    const int offset = 1 << j;
    each_run(tree.n, tree.root + tree.place + offset, tree.child_size(j),
             [&](Step run, Chunk first, Chunk count, Chunk at) {
               const Region there = piece(held, static_cast<Chunk>(offset) + at, count);
               draft.send(down(j) + run, tree.child(j),
                          tree.is_root() ? input(first, count) : there);
             });
  }
  if (!tree.is_root()) {
    draft.copy(2 * tree.rounds, output(0), piece(held, 0));
  } else if (!request.in_place) {
    draft.copy(0, output(0), input(static_cast<Chunk>(request.rank)));
  }
  return draft.take();
}

// Up and down again. One chunk is written by every receive and read by every send, so that a send
// waits for all receives before it.
Program binomial_tree_barrier(const Request& request) {
  const Tree tree(request, 0);
  Draft draft(request, Algorithm::binomial_tree);
  if (request.size == 1) return draft.take();
  const Region token = draft.scratch(0);
  for (Step j = 0; j < tree.child_edges(); ++j) draft.recv(j, tree.child(j), token);
  if (!tree.is_root()) draft.send(tree.edge(), tree.parent(), token);
  send_down(draft, tree, token, tree.rounds);
  return draft.take();
}

}  // namespace

std::span<const Entry> binomial_tree_rows() {
  static constexpr Entry kRows[] = {
      {Collective::broadcast, Algorithm::binomial_tree, walking<binomial_tree_broadcast>, kOrdered},
      {Collective::reduce, Algorithm::binomial_tree, walking<binomial_tree_reduce>, kAnyOrder,
       kEven, nullptr, always},
      {Collective::all_reduce, Algorithm::binomial_tree, walking<binomial_tree_all_reduce>,
       kAnyOrder, kEven, nullptr, always},
      {Collective::gather, Algorithm::binomial_tree, binomial_tree_gather, kOrdered},
      {Collective::scatter, Algorithm::binomial_tree, binomial_tree_scatter, kOrdered},
      {Collective::barrier, Algorithm::binomial_tree, binomial_tree_barrier, kOrdered},
  };
  return kRows;
}

}  // namespace tutti::schedule::builders
