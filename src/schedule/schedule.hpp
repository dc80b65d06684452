// schedule/schedule.hpp - a collective algorithm as data: one short program per rank.
//
// A program works on numbered chunks in three spaces. How many chunks `input` and `output` have
// follows from the collective's shape (tutti/shape.hpp), n = size and `cut`:
//
//   collective                                   input    output    extent id of a chunk
//   broadcast reduce all_reduce scan …           cut      cut       c
//   gather (root), all_gather                    cut      n·cut     input: rank·cut + c, output: c
//   scatter (root), reduce_scatter               n·cut    cut       input: c, output: rank·cut + c
//   all_to_all                                   n·cut    n·cut     input: (rank·n + d)·cut + j,
//                                                                   output: (s·n + rank)·cut + j
//   barrier                                      0        0         scratch only, zero bytes
//
// broadcast uses `output` alone and is always in place. Sides that a rank does not have (output of
// reduce away from the root) have no chunks. A chunk's *extent id* says which piece of the whole
// message it is as large as; two chunks of the same id are equally large on all ranks. Scratch
// chunks name their extent id in `scratch`.
//
// Ordering       two ops depend on each other when they touch the same chunk and at least one
//                writes; the earlier one in the program goes first. Nothing else orders them.
// Matching       a send meets the recv, or the reduce source, of the peer with the same
//                step. A rank sends to one peer at most once per step: (peer, step) is the key.
// Raw and finish a reduce source is `raw` when it is some rank's own input, not a partial fold:
//                premul_sum multiplies those. `finish` marks the reduce that completes a result:
//                avg divides there. A result is finished exactly once, also when n = 1.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "tutti/status.hpp"
#include "tutti/types.hpp"

namespace tutti::schedule {

enum class OpKind : std::uint8_t {
#define TUTTI_OP(name) name,
#include "schedule/ops.def"
#undef TUTTI_OP
};
std::string_view to_string(OpKind kind) noexcept;

enum class Space : std::uint8_t { input, output, scratch };
std::string_view to_string(Space space) noexcept;

// `count` chunks of one space, from `first` on.
struct Region {
  Space space = Space::output;
  std::uint32_t first = 0;
  std::uint32_t count = 0;

  friend bool operator==(const Region&, const Region&) = default;
};

inline constexpr int kLocal = -1;

// One operand of a reduce: a local region, or the message that `peer` sends at `step`.
struct Source {
  int peer = kLocal;
  std::uint32_t step = 0;  // of the message, when peer != kLocal
  Region region;           // when local
  bool raw = false;

  friend bool operator==(const Source&, const Source&) = default;
};

struct Op {
  OpKind kind = OpKind::copy;
  std::uint32_t step = 0;
  int peer = kLocal;            // send, recv
  Region dst;                   // recv, copy, reduce
  Region src;                   // send, copy
  std::vector<Source> sources;  // reduce
  bool finish = false;          // reduce
  bool balanced = false;        // reduce: not from the left, but as ReductionOrder::tree does

  friend bool operator==(const Op&, const Op&) = default;
};

struct Program {
  Collective collective = Collective::barrier;
  Algorithm algorithm = Algorithm::automatic;
  int size = 1;
  int rank = 0;  // `size`: the switch that folds
  int root = 0;
  bool in_place = false;
  std::uint32_t cut = 1;
  std::vector<std::uint64_t> scratch;  // extent id of each scratch chunk
  std::vector<Op> ops;

  friend bool operator==(const Program&, const Program&) = default;
};

// What a builder is asked for. A rank's program is built without building anybody else's.
struct Request {
  Collective collective = Collective::all_reduce;
  int size = 1;
  int rank = 0;
  int root = 0;
  bool in_place = false;
  int shots = 2;  // direct all_reduce: 1 everyone folds all, 2 owners fold slices
  // hierarchical, chain, torus_2d: host of each rank; empty: one host
  std::span<const int> host_of{};
  ReductionOrder order = ReductionOrder::any;  // tree: folds are balanced
  // All ranks in an order in which neighbours sit near each other (topology::walk_of): rings go along it,
  // trees and hosts are built in it, wherever that leaves the order of reduction free. Empty: by number.
  std::span<const int> walk{};
};

// A switch is no rank: it has scratch alone, and gets and gives nothing.
inline bool is_switch(const Program& program) { return program.rank >= program.size; }
// The extent id of chunks that hold nothing: where only the order of messages counts.
inline constexpr std::uint64_t kNoBytes = ~std::uint64_t{0};

// Number of chunks in a space of this program, and the extent id of one of them.
std::uint32_t chunk_count(const Program& program, Space space);
std::uint64_t extent_of(const Program& program, Space space, std::uint32_t chunk);
// Whether the caller's data lie there before anything runs.
bool is_given(const Program& program, Space space);
// Bytes of an extent id are asked for with these numbers: how many ids there are for (collective,
// n, cut), and which part `j` of which block an id is.
std::uint64_t extent_count(Collective collective, int size, std::uint32_t cut);
// Into how many chunks the whole array is cut; 0: there is none.
std::uint64_t part_count(const Program& program);

// Where a chunk lies when aliasing is resolved: in place, chunks of `input` that are also chunks of
// `output` (or the other way round for scatter and reduce_scatter) get one name.
struct Place {
  Space space;
  std::uint32_t chunk;
  friend bool operator==(const Place&, const Place&) = default;
};
Place resolve(const Program& program, Space space, std::uint32_t chunk);

}  // namespace tutti::schedule
