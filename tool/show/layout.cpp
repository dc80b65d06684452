#include "tool/show/layout.hpp"

#include <algorithm>
#include <cmath>
#include <map>
#include <numbers>
#include <numeric>
#include <optional>
#include <set>

#include "topology/topology.hpp"
#include "tutti/shape.hpp"

namespace tutti::tool {
namespace {

using schedule::Op;
using schedule::OpKind;
using schedule::Program;

using Edges = std::set<std::pair<int, int>>;

// A tree that spans all ranks.
struct Tree {
  int root = 0;
  std::vector<std::vector<int>> children;
  std::vector<int> depth;
  int height = 0;

  bool is_inner(int rank) const { return !children[static_cast<std::size_t>(rank)].empty(); }
};

bool is_message(const Op& op) { return op.kind == OpKind::send; }

// Which pairs of ranks exchange each piece of the message.
std::map<std::uint64_t, Edges> edges_by_extent(std::span<const Program> programs) {
  std::map<std::uint64_t, Edges> edges;
  for (const Program& program : programs)
    for (const Op& op : program.ops) {
      if (!is_message(op)) continue;
      const auto pair = std::minmax(program.rank, op.peer);
      for (std::uint32_t c = 0; c < op.src.count; ++c)
        edges[schedule::extent_of(program, op.src.space, op.src.first + c)].insert(pair);
    }
  return edges;
}

// Who completes the sums of this piece; the root where there is none.
int top_of(std::span<const Program> programs, std::uint64_t extent) {
  for (const Program& program : programs)
    for (const Op& op : program.ops)
      if (op.kind == OpKind::reduce && op.finish &&
          schedule::extent_of(program, op.dst.space, op.dst.first) == extent)
        return program.rank;
  return programs.front().root;
}

std::optional<Tree> tree_of(const Edges& edges, int root, int n) {
  if (static_cast<int>(edges.size()) != n - 1) return std::nullopt;
  Tree tree{root, std::vector<std::vector<int>>(static_cast<std::size_t>(n)),
            std::vector<int>(static_cast<std::size_t>(n), -1), 0};
  std::vector<int> ranks{root};
  tree.depth[static_cast<std::size_t>(root)] = 0;
  for (std::size_t i = 0; i < ranks.size(); ++i)
    for (const auto& [a, b] : edges) {
      const int other = a == ranks[i] ? b : b == ranks[i] ? a : -1;
      if (other < 0 || tree.depth[static_cast<std::size_t>(other)] >= 0) continue;
      const int depth = tree.depth[static_cast<std::size_t>(ranks[i])] + 1;
      tree.depth[static_cast<std::size_t>(other)] = depth;
      tree.height = std::max(tree.height, depth);
      tree.children[static_cast<std::size_t>(ranks[i])].push_back(other);
      ranks.push_back(other);
    }
  if (static_cast<int>(ranks.size()) != n) return std::nullopt;
  return tree;
}

// The different trees that pieces of the message run along; none if there is anything else.
std::vector<Tree> find_trees(std::span<const Program> programs) {
  const int n = static_cast<int>(programs.size());
  std::map<Edges, int> distinct;
  Edges all;
  for (const auto& [extent, edges] : edges_by_extent(programs)) {
    distinct.emplace(edges, top_of(programs, extent));
    all.insert(edges.begin(), edges.end());
  }
  std::vector<Tree> trees;
  // Gather's pieces use a part of the tree each.
  if (auto one = tree_of(all, distinct.empty() ? 0 : programs.front().root, n)) {
    if (distinct.size() == 1) one = tree_of(all, distinct.begin()->second, n);
    trees.push_back(*std::move(one));
    return trees;
  }
  for (const auto& [edges, root] : distinct)
    if (auto tree = tree_of(edges, root, n)) trees.push_back(*std::move(tree));
  if (trees.size() != distinct.size() || trees.size() != 2) trees.clear();
  return trees;
}

void place_below(const Tree& tree, int rank, double& next_leaf, std::vector<double>& x) {
  const auto& children = tree.children[static_cast<std::size_t>(rank)];
  double sum = 0;
  for (const int child : children) {
    place_below(tree, child, next_leaf, x);
    sum += x[static_cast<std::size_t>(child)];
  }
  x[static_cast<std::size_t>(rank)] =
      children.empty() ? next_leaf++ : sum / static_cast<double>(children.size());
}

void stretch(std::vector<double>& values) {
  const auto [low, high] = std::minmax_element(values.begin(), values.end());
  const double least = *low, width = *high - *low;
  for (double& value : values) value = width > 0 ? (value - least) / width : 0.5;
}

Layout one_tree(const Tree& tree) {
  const std::size_t n = tree.depth.size();
  Layout layout{"tree", std::vector<double>(n), std::vector<double>(n), {}};
  double next_leaf = 0;
  place_below(tree, tree.root, next_leaf, layout.x);
  for (std::size_t r = 0; r < n; ++r) layout.y[r] = tree.depth[r];
  stretch(layout.x);
  stretch(layout.y);
  return layout;
}

// One tree hangs down and the other grows up: whoever is inside the one is a leaf of the other.
//
//        0 . . . . .        first tree's root
//          4                (x: ranks in their order, which is the trees' in-order)
//       2     6
//      1  5                 leaves of the first, inside of the second
//          3
//            7              second tree's root
Layout two_trees(const std::vector<Tree>& trees, int root) {
  const std::size_t n = trees[0].depth.size();
  Layout layout{"two_trees", std::vector<double>(n), std::vector<double>(n), {}};
  const Tree& upper = trees[0].is_inner(root) || trees[0].root == root ? trees[0] : trees[1];
  const Tree& lower = &upper == &trees[0] ? trees[1] : trees[0];
  for (std::size_t r = 0; r < n; ++r) {
    const int rank = static_cast<int>(r);
    layout.x[r] = (rank - root + static_cast<int>(n)) % static_cast<int>(n);
    // A leaf of both goes to the side on which it is higher up.
    const bool above = upper.is_inner(rank) != lower.is_inner(rank)
                           ? upper.is_inner(rank)
                           : upper.depth[r] <= lower.depth[r];
    layout.y[r] = above ? upper.depth[r] : upper.height + lower.height - 1 - lower.depth[r];
  }
  stretch(layout.x);
  stretch(layout.y);
  return layout;
}

Layout circle(std::size_t n, int centre = -1) {
  Layout layout{centre < 0 ? "ring" : "star", std::vector<double>(n), std::vector<double>(n), {}};
  const double around = static_cast<double>(n - (centre < 0 ? 0 : 1));
  double place = 0;
  for (std::size_t r = 0; r < n; ++r) {
    layout.x[r] = layout.y[r] = 0.5;
    if (static_cast<int>(r) == centre || n == 1) continue;
    const double angle = 2 * std::numbers::pi * place++ / around - std::numbers::pi / 2;
    layout.x[r] += 0.5 * std::cos(angle);
    layout.y[r] += 0.5 * std::sin(angle);
  }
  return layout;
}

// Each bit of a rank's number is a direction, as one draws a cube on paper.
Layout cube(std::size_t n) {
  static constexpr double kAlong[][2] = {{1, 0},    {0, 1},   {0.42, -0.38},
                                         {2, 0.16}, {0.2, 2}, {4.5, 0.1}};
  Layout layout{"cube", std::vector<double>(n), std::vector<double>(n), {}};
  for (std::size_t r = 0; r < n; ++r)
    for (std::size_t bit = 0; bit < std::size(kAlong); ++bit) {
      if ((r >> bit & 1) == 0) continue;
      layout.x[r] += kAlong[bit][0];
      layout.y[r] += kAlong[bit][1];
    }
  stretch(layout.x);
  stretch(layout.y);
  return layout;
}

// Ranks are numbered row by row.
Layout grid(std::size_t n) {
  std::size_t rows = static_cast<std::size_t>(std::sqrt(static_cast<double>(n)));
  while (n % rows != 0) --rows;
  Layout layout{"grid", std::vector<double>(n), std::vector<double>(n), {}};
  for (std::size_t r = 0; r < n; ++r) {
    layout.x[r] = static_cast<double>(r % (n / rows));
    layout.y[r] = static_cast<double>(r / (n / rows));
  }
  stretch(layout.x);
  stretch(layout.y);
  return layout;
}

// One host a row.
Layout by_host(std::span<const int> host_of) {
  const std::size_t n = host_of.size();
  Layout layout{"hosts", std::vector<double>(n), std::vector<double>(n), {}};
  layout.hosts = topology::ranks_by_host(host_of);
  std::size_t widest = 1;
  for (const auto& ranks : layout.hosts) widest = std::max(widest, ranks.size());
  for (std::size_t host = 0; host < layout.hosts.size(); ++host)
    for (std::size_t i = 0; i < layout.hosts[host].size(); ++i) {
      const auto rank = static_cast<std::size_t>(layout.hosts[host][i]);
      layout.x[rank] = widest == 1 ? 0.5 : static_cast<double>(i) / static_cast<double>(widest - 1);
      layout.y[rank] = static_cast<double>(host);
    }
  stretch(layout.y);
  return layout;
}

}  // namespace

Layout lay_out(std::span<const Program> programs, std::span<const int> host_of) {
  const Program& model = programs.front();
  const std::size_t n = programs.size();
  const bool power = (n & (n - 1)) == 0;
  switch (model.algorithm) {
    case Algorithm::hierarchical:
    case Algorithm::chain:
      if (!host_of.empty()) return by_host(host_of);
      break;
    case Algorithm::in_network: return circle(n, n > 1 ? static_cast<int>(n) - 1 : -1);
    case Algorithm::torus_2d: return grid(n);
    case Algorithm::hypercube:
    case Algorithm::recursive_doubling:
    case Algorithm::halving_doubling:
      if (power && n > 2 && n <= 64) return cube(n);
      break;
    case Algorithm::linear:
      if (has_root(model.collective) || !shape_of(model.collective).has_data())
        return circle(n, model.root);
      break;
    case Algorithm::binomial_tree:
    case Algorithm::double_binary_tree: {
      const auto trees = n > 1 ? find_trees(programs) : std::vector<Tree>();
      if (trees.size() == 1) return one_tree(trees[0]);
      if (trees.size() == 2) return two_trees(trees, model.root);
      break;
    }
    default: break;  // any other looks well on a circle
  }
  return circle(n);
}

Layout lay_out_on_one_host(int ranks) {
  Layout layout = circle(static_cast<std::size_t>(ranks));
  layout.hosts.emplace_back(static_cast<std::size_t>(ranks));
  std::iota(layout.hosts[0].begin(), layout.hosts[0].end(), 0);
  return layout;
}

}  // namespace tutti::tool
