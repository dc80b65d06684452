// double_binary_tree - two trees, each for one half of the data; a rank that works inside one tree
// is a leaf of the other, so that every rank sends and receives about as much (Sanders, Speck and
// Träff). Pipelined: each half goes in kPipe chunks.
//
//   n = 8, tree 1               tree 2: its mirror image (x -> 7 - x)
//
//            0                                7
//            |                                |
//            4                                3
//          /   \                            /   \                                            .
//         2     6                          5     1
//        / \   / \                        / \   / \                                          .
//       1   3 5   7                      6   4 2   0
//
//   n odd, tree 2: tree 1 shifted by one (x -> x + 1 mod n).
//
// all_reduce: sums go up, results down, in both trees. broadcast and reduce: the root stands
// outside, the trees span the other ranks, and the root feeds (or hears) the two tree roots.
#include <bit>

#include "schedule/build/walk.hpp"

namespace tutti::schedule::builders {
namespace {

constexpr Chunk kPipe = 4;
constexpr Chunk kCut = 2 * kPipe;
constexpr int kNobody = -1;

// Tree 1 over the places 0 … n-1, as pure arithmetic.
struct Shape {
  int n;

  Step levels() const { return static_cast<Step>(std::bit_width(static_cast<unsigned>(n - 1))); }
  // Height above the odd places, which are leaves; it grows on the way to the root.
  Step level(int place) const {
    return place == 0 ? levels()
                      : static_cast<Step>(std::countr_zero(static_cast<unsigned>(place)));
  }
  int parent(int place) const {
    if (place == 0) return kNobody;
    const int bit = place & -place;
    const int up = (place ^ bit) | (bit << 1);
    return up < n ? up : place ^ bit;
  }
  int low_child(int place) const {
    const int half = (place & -place) / 2;
    return half == 0 ? kNobody : place - half;
  }
  int high_child(int place) const {
    if (place == 0) return n == 1 ? kNobody : static_cast<int>(std::bit_floor(unsigned(n - 1)));
    int half = (place & -place) / 2;
    while (half > 0 && place + half >= n) half /= 2;
    return half == 0 ? kNobody : place + half;
  }
  bool is_leaf(int place) const {
    return low_child(place) == kNobody && high_child(place) == kNobody;
  }
};

// One rank's neighbourhood in one of the two trees.
struct Spot {
  Step level = 0;
  int parent = kNobody;
  struct Child {
    int rank;
    Step level;
    bool is_leaf;
  };
  std::vector<Child> low, high;  // at most one each

  bool is_root() const { return parent == kNobody; }
  bool is_leaf() const { return low.empty() && high.empty(); }
};

// `rank_of(x)` names the group's rank of member x.
template <class RankOf>
Spot spot(int tree, int n, int member, RankOf rank_of) {
  const Shape shape{n};
  const bool mirrored = n % 2 == 0;
  const auto swap = [&](int x, int shift) {  // tree 2 in terms of tree 1, and back
    if (tree == 0) return x;
    return mirrored ? n - 1 - x : wrap(x + shift, n);
  };
  const int place = swap(member, -1);
  const auto name = [&](int x) { return rank_of(swap(x, 1)); };
  Spot found;
  found.level = shape.level(place);
  if (const int up = shape.parent(place); up != kNobody) found.parent = name(up);
  const auto add = [&](std::vector<Spot::Child>& list, int child) {
    if (child != kNobody) list.push_back({name(child), shape.level(child), shape.is_leaf(child)});
  };
  add(found.low, shape.low_child(place));
  add(found.high, shape.high_child(place));
  return found;
}

// When the message over an edge of this child level goes: later for later chunks; the trees take
// turns, so that a pair that meets in both never has two messages in one step.
Step tick(int tree, Step when, Chunk chunk) { return 2 * (when + chunk) + static_cast<Step>(tree); }

struct Edge {
  int tree;
  Chunk pipe;   // number within the half
  Chunk chunk;  // of the message
};

// Takes the children's sums of one chunk and returns where the sum with the own input is: `into`, or
// the input itself where there are no children.
Region fold_up(Draft& draft, const Spot& at, const Edge& edge, Region into, bool finish) {
  const Region own = input(edge.chunk);
  if (at.is_leaf()) return own;
  std::vector<Source> sources;
  Step last = 0;
  const auto hear = [&](const Spot::Child& child) {
    const Region inbox = draft.scratch(edge.chunk);
    last = tick(edge.tree, child.level, edge.pipe);
    draft.recv(last, child.rank, inbox);
    sources.push_back(child.is_leaf ? raw(inbox) : partial(inbox));
  };
  for (const auto& child : at.low) hear(child);
  sources.push_back(raw(own));
  for (const auto& child : at.high) hear(child);
  draft.reduce(last, into, std::move(sources), finish);
  return into;
}

void send_down(Draft& draft, const Spot& at, const Edge& edge, Step base, Step levels) {
  const auto when = [&](Step child_level) {
    return base + tick(edge.tree, levels - 1 - child_level, edge.pipe);
  };
  if (!at.is_root()) draft.recv(when(at.level), at.parent, output(edge.chunk));
  for (const auto& child : at.high) draft.send(when(child.level), child.rank, output(edge.chunk));
  for (const auto& child : at.low) draft.send(when(child.level), child.rank, output(edge.chunk));
}

// Chunk by chunk, so that a program's order is roughly that of time.
template <class Visit>
void each_edge(Visit visit) {
  for (Chunk pipe = 0; pipe < kPipe; ++pipe) {
    for (int tree = 0; tree < 2; ++tree) {
      visit(Edge{tree, pipe, static_cast<Chunk>(tree) * kPipe + pipe});
    }
  }
}

// Where the trees of broadcast and reduce stand: among all ranks but the root.
struct Outside {
  int n, root;
  explicit Outside(const Request& request) : n(request.size), root(request.root) {}
  int member(int rank) const { return wrap(rank - root - 1, n); }
  int rank(int member) const { return wrap(root + 1 + member, n); }
  Step levels() const { return Shape{n - 1}.levels(); }
  // Tree 1's root is member 0; tree 2's the last one, or member 1 % (n - 1) when shifted.
  int tree_root(int tree) const {
    if (tree == 0) return rank(0);
    return rank((n - 1) % 2 == 0 ? n - 2 : 1 % (n - 1));
  }
};

Program double_binary_tree_all_reduce(const Request& request) {
  const auto self = [](int x) { return x; };
  const int n = request.size;
  const Spot spots[] = {spot(0, n, request.rank, self), spot(1, n, request.rank, self)};
  const Step levels = Shape{n}.levels(), turn = 2 * (levels + kPipe);
  Draft draft(request, Algorithm::double_binary_tree, kCut);
  each_edge([&](const Edge& edge) {
    const Spot& at = spots[edge.tree];
    const Region own = output(edge.chunk);
    if (n == 1) draft.reduce(0, own, {raw(input(edge.chunk))}, true);
    const Region sum = fold_up(draft, at, edge, own, at.is_root());
    if (!at.is_root()) draft.send(tick(edge.tree, at.level, edge.pipe), at.parent, sum);
  });
  each_edge([&](const Edge& edge) { send_down(draft, spots[edge.tree], edge, turn, levels); });
  return draft.take();
}

Program double_binary_tree_broadcast(const Request& request) {
  Draft draft(request, Algorithm::double_binary_tree, kCut);
  const Outside outside(request);
  if (request.size == 1) return draft.take();
  if (request.rank == request.root) {
    each_edge([&](const Edge& edge) {
      draft.send(tick(edge.tree, 0, edge.pipe), outside.tree_root(edge.tree), output(edge.chunk));
    });
    return draft.take();
  }
  const auto rank_of = [&](int member) { return outside.rank(member); };
  const int member = outside.member(request.rank);
  const Spot spots[] = {spot(0, outside.n - 1, member, rank_of),
                        spot(1, outside.n - 1, member, rank_of)};
  each_edge([&](const Edge& edge) {
    const Spot& at = spots[edge.tree];
    if (at.is_root()) {
      draft.recv(tick(edge.tree, 0, edge.pipe), request.root, output(edge.chunk));
    }
    send_down(draft, at, edge, 2, outside.levels());
  });
  return draft.take();
}

Program double_binary_tree_reduce(const Request& request) {
  Draft draft(request, Algorithm::double_binary_tree, kCut);
  const Outside outside(request);
  const Step last = outside.n > 1 ? outside.levels() : 0;
  if (request.rank == request.root) {
    each_edge([&](const Edge& edge) {
      const Region own = input(edge.chunk);
      const Step step = tick(edge.tree, last, edge.pipe);
      if (outside.n == 1) {
        draft.reduce(step, output(edge.chunk), {raw(own)}, true);
        return;
      }
      const Region inbox = draft.scratch(edge.chunk);
      draft.recv(step, outside.tree_root(edge.tree), inbox);
      // A tree of one rank hands its input on as it is.
      const Source sum = outside.n == 2 ? raw(inbox) : partial(inbox);
      draft.reduce(step, output(edge.chunk), {raw(own), sum}, true);
    });
    return draft.take();
  }
  const auto rank_of = [&](int member) { return outside.rank(member); };
  const int member = outside.member(request.rank);
  const Spot spots[] = {spot(0, outside.n - 1, member, rank_of),
                        spot(1, outside.n - 1, member, rank_of)};
  each_edge([&](const Edge& edge) {
    const Spot& at = spots[edge.tree];
    const Region into = at.is_leaf() ? Region{} : draft.scratch(edge.chunk);
    const Region sum = fold_up(draft, at, edge, into, false);
    const int up = at.is_root() ? request.root : at.parent;
    draft.send(tick(edge.tree, at.is_root() ? last : at.level, edge.pipe), up, sum);
  });
  return draft.take();
}

}  // namespace

std::span<const Entry> double_binary_tree_rows() {
  static constexpr Entry kRows[] = {
      {Collective::broadcast, Algorithm::double_binary_tree, walking<double_binary_tree_broadcast>,
       kOrdered},
      {Collective::reduce, Algorithm::double_binary_tree, walking<double_binary_tree_reduce>},
      {Collective::all_reduce, Algorithm::double_binary_tree,
       walking<double_binary_tree_all_reduce>},
  };
  return kRows;
}

}  // namespace tutti::schedule::builders
