// schedule/build/draft.hpp - how a builder writes one rank's program down, op by op.
//
//   Draft draft(request, Algorithm::ring, cut);
//   const Region inbox = draft.scratch(extent);
//   draft.recv(step, prev, inbox);
//   draft.reduce(step, output(c), {partial(inbox), raw(input(c))}, finish);
//   return draft.take();
#pragma once

#include <cstdint>
#include <utility>
#include <vector>

#include "schedule/schedule.hpp"

namespace tutti::schedule::builders {

using Step = std::uint32_t;
using Chunk = std::uint32_t;

inline Region input(Chunk first, Chunk count = 1) { return {Space::input, first, count}; }
inline Region output(Chunk first, Chunk count = 1) { return {Space::output, first, count}; }
// `count` chunks of a region, from its chunk `offset` on.
inline Region piece(const Region& whole, Chunk offset, Chunk count = 1) {
  return {whole.space, whole.first + offset, count};
}

inline Source raw(const Region& region) { return {kLocal, 0, region, true}; }
inline Source partial(const Region& region) { return {kLocal, 0, region, false}; }

// A rank, or a chunk that belongs to one, n and below zero wrapped round.
inline int wrap(int x, int n) { return ((x % n) + n) % n; }

class Draft {
 public:
  Draft(const Request& request, Algorithm algorithm, Chunk cut = 1) {
    program_.collective = request.collective;
    program_.algorithm = algorithm;
    program_.size = request.size;
    program_.rank = request.rank;
    program_.root = request.root;
    program_.in_place = request.in_place;
    program_.cut = cut;
    is_tree_ = request.order == ReductionOrder::tree;
  }

  // Fresh scratch chunks with consecutive extents.
  Region scratch(std::uint64_t first_extent, Chunk count = 1) {
    const auto first = static_cast<Chunk>(program_.scratch.size());
    for (Chunk i = 0; i < count; ++i) program_.scratch.push_back(first_extent + i);
    return {Space::scratch, first, count};
  }
  void send(Step step, int peer, Region src) {
    add({OpKind::send, step, peer, {}, src, {}, false});
  }
  void recv(Step step, int peer, Region dst) {
    add({OpKind::recv, step, peer, dst, {}, {}, false});
  }
  void copy(Step step, Region dst, Region src) {
    add({OpKind::copy, step, kLocal, dst, src, {}, false});
  }
  // In the order of the request. Of three sources or fewer either is the same.
  void reduce(Step step, Region dst, std::vector<Source> sources, bool finish) {
    const bool balanced = is_tree_ && sources.size() > 3;
    add({OpKind::reduce, step, kLocal, dst, {}, std::move(sources), finish, balanced});
  }
  // From the left in any order: of sources that are folds of 1, 1, 2, 4 … ranks that is a tree.
  void reduce_onto_first(Step step, Region dst, std::vector<Source> sources, bool finish) {
    add({OpKind::reduce, step, kLocal, dst, {}, std::move(sources), finish});
  }

  Program& program() { return program_; }
  Program take() { return std::move(program_); }

 private:
  void add(Op op) { program_.ops.push_back(std::move(op)); }

  Program program_;
  bool is_tree_ = false;
};

// What every reduction of a single rank is: its own input, multiplied and divided as it must be.
inline Program alone(const Request& request, Algorithm algorithm) {
  Draft draft(request, algorithm);
  draft.reduce(0, output(0), {raw(input(0))}, true);
  return draft.take();
}

}  // namespace tutti::schedule::builders
