#include "plan/in_network.hpp"

#include <algorithm>

namespace tutti::plan {
namespace {

using schedule::kLocal;
using schedule::Op;
using schedule::OpKind;
using schedule::Program;
using schedule::Region;
using schedule::Source;
using schedule::Space;

// Steps; slices travel in steps of their own so that (peer, step) stays a key.
constexpr std::uint32_t kInside = 0;
std::uint32_t up(int slice) { return 1 + static_cast<std::uint32_t>(slice); }

Region chunk(Space space, int index) { return {space, static_cast<std::uint32_t>(index), 1}; }

struct Writer {
  Program program;
  std::uint32_t steps;  // of slices, for what comes after them

  Region scratch() {
    program.scratch.push_back(0);
    return chunk(Space::scratch, static_cast<int>(program.scratch.size()) - 1);
  }
  void send(std::uint32_t step, int peer, Region src) {
    program.ops.push_back({OpKind::send, step, peer, {}, src, {}, false});
  }
  Source receive(std::uint32_t step, int peer, Region dst) {
    program.ops.push_back({OpKind::recv, step, peer, dst, {}, {}, false});
    return {kLocal, 0, dst, false};
  }
  void fold(std::uint32_t step, Region dst, std::vector<Source> sources) {
    program.ops.push_back({OpKind::reduce, step, kLocal, dst, {}, std::move(sources), false});
  }
};

}  // namespace

SwitchTree::SwitchTree(const Cluster& cluster, const std::vector<int>& seats) {
  const int per_leaf = cluster.hosts_per_switch > 0 ? cluster.hosts_per_switch : 32;
  int last_host = -1;
  int last_leaf = -1;
  for (const int seat : seats) {
    const int host = seat / cluster.ranks_per_host;
    if (host != last_host) {
      ranks_of_host_.emplace_back();
      if (host / per_leaf != last_leaf) hosts_of_leaf_.emplace_back();
      last_leaf = host / per_leaf;
      hosts_of_leaf_.back().push_back(static_cast<int>(ranks_of_host_.size()) - 1);
      leaf_of_host_.push_back(leaves() - 1);
    }
    last_host = host;
    ranks_of_host_.back().push_back(static_cast<int>(host_.size()));
    host_.push_back(static_cast<int>(ranks_of_host_.size()) - 1);
  }
  std::size_t least = ranks_of_host_[0].size();
  for (const auto& ranks : ranks_of_host_) least = std::min(least, ranks.size());
  slices_ = static_cast<int>(least);
}

int SwitchTree::owner(int host, int slice) const {
  return ranks_of_host_[static_cast<std::size_t>(host)][static_cast<std::size_t>(slice)];
}

Program SwitchTree::empty(int rank) const {
  Program program;
  program.collective = Collective::all_reduce;
  program.size = ranks() + switches();
  program.rank = rank;
  program.cut = static_cast<std::uint32_t>(slices_);
  return program;
}

Program SwitchTree::program(int rank) const {
  if (rank < ranks()) return of_rank(rank);
  return rank == spine_rank() ? of_spine() : of_leaf(rank - ranks());
}

Program SwitchTree::of_rank(int rank) const {
  Writer writer{empty(rank), static_cast<std::uint32_t>(slices_)};
  const int host = host_[static_cast<std::size_t>(rank)];
  const auto& here = ranks_of_host_[static_cast<std::size_t>(host)];
  const auto down = [&](int slice) { return up(slice) + writer.steps; };
  const std::uint32_t spread = 1 + 2 * writer.steps;
  const int leaf = leaf_rank(leaf_of_host_[static_cast<std::size_t>(host)]);
  for (int slice = 0; slice < slices_; ++slice)
    if (owner(host, slice) != rank)
      writer.send(kInside, owner(host, slice), chunk(Space::input, slice));
  for (int slice = 0; slice < slices_; ++slice) {
    if (owner(host, slice) != rank) continue;
    std::vector<Source> sources = {{kLocal, 0, chunk(Space::input, slice), true}};
    for (const int peer : here)
      if (peer != rank) sources.push_back(writer.receive(kInside, peer, writer.scratch()));
    Region sum = chunk(Space::input, slice);
    if (sources.size() > 1) {
      sum = writer.scratch();
      writer.fold(kInside, sum, std::move(sources));
    }
    writer.send(up(slice), leaf, sum);
    (void)writer.receive(down(slice), leaf, chunk(Space::output, slice));
    for (const int peer : here)
      if (peer != rank) writer.send(spread, peer, chunk(Space::output, slice));
  }
  for (int slice = 0; slice < slices_; ++slice)
    if (owner(host, slice) != rank)
      (void)writer.receive(spread, owner(host, slice), chunk(Space::output, slice));
  return std::move(writer.program);
}

Program SwitchTree::of_leaf(int leaf) const {
  Writer writer{empty(leaf_rank(leaf)), static_cast<std::uint32_t>(slices_)};
  const auto& hosts = hosts_of_leaf_[static_cast<std::size_t>(leaf)];
  for (int slice = 0; slice < slices_; ++slice) {
    std::vector<Source> sources;
    for (const int host : hosts)
      sources.push_back(writer.receive(up(slice), owner(host, slice), writer.scratch()));
    const Region sum = writer.scratch();
    writer.fold(up(slice), sum, std::move(sources));
    writer.send(up(slice), spine_rank(), sum);
  }
  for (int slice = 0; slice < slices_; ++slice) {
    const std::uint32_t down = up(slice) + writer.steps;
    const Region result = writer.scratch();
    (void)writer.receive(down, spine_rank(), result);
    for (const int host : hosts) writer.send(down, owner(host, slice), result);
  }
  return std::move(writer.program);
}

Program SwitchTree::of_spine() const {
  Writer writer{empty(spine_rank()), static_cast<std::uint32_t>(slices_)};
  for (int slice = 0; slice < slices_; ++slice) {
    std::vector<Source> sources;
    for (int leaf = 0; leaf < leaves(); ++leaf)
      sources.push_back(writer.receive(up(slice), leaf_rank(leaf), writer.scratch()));
    const Region sum = writer.scratch();
    writer.fold(up(slice), sum, std::move(sources));
    for (int leaf = 0; leaf < leaves(); ++leaf)
      writer.send(up(slice) + writer.steps, leaf_rank(leaf), sum);
  }
  return std::move(writer.program);
}

}  // namespace tutti::plan
