// tutti/shape.hpp - the shape of a collective: who has which blocks, and what becomes of them.
//
// One row per collective (tutti/collectives.def). Whatever else is to be known of its buffers
// follows from the row and is worked out here, once: no other place needs a list of collectives.
//
//   const CollectiveShape& shape = shape_of(Collective::gather);
//   shape.output.is_there(rank == root);   // whether this rank has an output
//   shape.has_parts();                     // whether the array has a part for each rank
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string_view>

#include "tutti/types.hpp"

namespace tutti {
inline namespace [[gnu::visibility("default")]] v1 {

// What one side of a call holds.
enum class Blocks : std::uint8_t { none, one, each };

struct CollectiveSide {
  Blocks blocks = Blocks::none;
  bool only_root = false;

  constexpr bool is_there(bool at_root) const noexcept {
    return blocks != Blocks::none && (at_root || !only_root);
  }
};

struct CollectiveShape {
  // Whose contributions are folded into a result.
  enum class Fold : std::uint8_t { nobody, all, up_to_own, before_own };
  // How much of the array crosses a rank's link at least.
  enum class Traffic : std::uint8_t { nothing, whole, share, twice };

  std::string_view word;
  bool rooted = false;
  CollectiveSide input;
  CollectiveSide output;
  Fold fold = Fold::nobody;
  Traffic traffic = Traffic::nothing;

  // Whether bytes move at all; a barrier moves none.
  constexpr bool has_data() const noexcept { return output.blocks != Blocks::none; }
  // Whether there is one buffer only, the output, which is the input of the root.
  constexpr bool has_one_buffer() const noexcept {
    return has_data() && input.blocks == Blocks::none;
  }
  constexpr bool folds() const noexcept { return fold != Fold::nobody; }
  // Whether ranks get different folds, each of the ranks before it.
  constexpr bool is_prefix() const noexcept {
    return fold == Fold::up_to_own || fold == Fold::before_own;
  }
  // Whether the array has a part for each rank.
  constexpr bool has_parts() const noexcept {
    return input.blocks == Blocks::each || output.blocks == Blocks::each;
  }
  // Whether each pair of ranks has a part of its own.
  constexpr bool has_pairs() const noexcept {
    return input.blocks == Blocks::each && output.blocks == Blocks::each;
  }
  // Whether a side is one rank's part of the array, rather than all of it.
  constexpr bool is_part(const CollectiveSide& side) const noexcept {
    return side.blocks == Blocks::one && has_parts();
  }
  // The side with a block for each rank, of a collective that has parts but no pairs.
  constexpr const CollectiveSide& parts_side() const noexcept {
    return input.blocks == Blocks::each ? input : output;
  }
  // Whether every rank has the whole list of parts before it, so that all know how long each is.
  constexpr bool all_see_parts() const noexcept {
    return has_parts() && !has_pairs() && !parts_side().only_root;
  }
  // Whether all ranks end with the same result.
  constexpr bool all_get_the_same() const noexcept {
    return has_data() && !has_parts() && !output.only_root && !is_prefix();
  }
  // Whether no rank can end before it has heard of every other one, directly or through others. A
  // leaf of a broadcast could.
  constexpr bool all_meet() const noexcept { return !rooted && !is_prefix(); }
  // How many ranks, from rank 0 on, are in the fold that `rank` gets.
  constexpr int contributors(int rank, int ranks) const noexcept {
    switch (fold) {
      case Fold::nobody: return 0;
      case Fold::all: return ranks;
      case Fold::up_to_own: return rank + 1;
      case Fold::before_own: return rank;
    }
    return 0;
  }
  // Whether `rank`'s fold is of nobody: its output stays as it was.
  constexpr bool gets_nothing(int rank, int ranks) const noexcept {
    return folds() && contributors(rank, ranks) == 0;
  }
  // What is not folded is somebody's block as it was: whose, of block `block` of the output.
  constexpr int origin(int block, int root) const noexcept {
    return output.blocks == Blocks::each ? block : root;
  }
};

// The words of the rows.
namespace shape_words {
inline constexpr bool equal = false, rooted = true;
inline constexpr CollectiveSide none{}, one{Blocks::one}, each{Blocks::each};
inline constexpr CollectiveSide one_at_root{Blocks::one, true};
inline constexpr CollectiveSide each_at_root{Blocks::each, true};
}  // namespace shape_words

inline constexpr std::array<CollectiveShape, kCollectives> kCollectiveShapes = {{
#define TUTTI_SHAPE(word, WORD, root, input, output, fold, traffic) \
  {#word,                                                           \
   shape_words::root,                                               \
   shape_words::input,                                              \
   shape_words::output,                                             \
   CollectiveShape::Fold::fold,                                     \
   CollectiveShape::Traffic::traffic},
#include "tutti/collectives.def"
#undef TUTTI_SHAPE
}};

constexpr const CollectiveShape& shape_of(Collective collective) noexcept {
  return kCollectiveShapes[static_cast<std::size_t>(collective)];
}

// Bus bandwidth over algorithm bandwidth, by nccl-tests' convention: what a rank's busiest wire must
// carry, relative to the array.
constexpr double bus_factor(Collective collective, int ranks) noexcept {
  const double share = ranks > 0 ? static_cast<double>(ranks - 1) / ranks : 0;
  switch (shape_of(collective).traffic) {
    case CollectiveShape::Traffic::nothing: return 0;
    case CollectiveShape::Traffic::whole: return 1;
    case CollectiveShape::Traffic::share: return share;
    case CollectiveShape::Traffic::twice: return 2 * share;
  }
  return 0;
}

}  // namespace v1
}  // namespace tutti
