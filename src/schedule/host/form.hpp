// schedule/host/form.hpp - what ranks of one host do instead of sending messages: pure data.
//
// Ranks that share a host do not send. They meet, and between meetings each reads, folds and writes
// memory of the others. The host form of a rank is a list of phases; before each phase but the first
// all ranks meet. schedule/host/lower.hpp makes it of message programs, schedule/verify.hpp proves it, the
// tuner costs it, the engine's host run executes it, `tutti show --form host` prints it.
//
//   window         all_reduce, owners fold        mapped         the same
//   phase 0        show input[p] to each p        phase 0
//   ── meet ──                                    ── meet ──
//   phase 1        fold own slice, keep result    phase 1        fold own slice where it lies, and put
//   ── meet ──                                                   the result into everybody's output
//   phase 2        take everybody's result        ── meet ──
//                                                 phase 2        (nothing: buffers go back to callers)
//
// Slots          what a rank shows lies in its window, one slot per shown chunk; what its fold made
//                lies in its result slot. A slot is good for the phase after the one that filled it.
// Pieces         a form says nothing of sizes. Long chunks go through it piece by piece: piece k of a
//                chunk only ever meets piece k of another, so one proof serves all pieces.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string_view>
#include <vector>

#include "schedule/schedule.hpp"

namespace tutti::schedule {

// What the ranks of a host can do with the memory that the others passed.
enum class Reach : std::uint8_t {
  window,         // nothing: whatever is to be read is copied into a window first
  readable,       // the kernel copies out of it; it can be neither folded nor written there
  mapped_source,  // what is read is mapped by all, what is written is not
  mapped,         // everything is mapped by all
};
inline constexpr Reach kReaches[] = {Reach::window, Reach::readable, Reach::mapped_source,
                                     Reach::mapped};
std::string_view to_string(Reach reach) noexcept;

enum class HostAction : std::uint8_t {
#define TUTTI_HOST_ACTION(name) name,
#include "schedule/host/actions.def"
#undef TUTTI_HOST_ACTION
};
std::string_view to_string(HostAction action) noexcept;

// A place in one rank's memory.
struct Spot {
  enum class Where : std::uint8_t { input, output, window, result };
  Where where = Where::output;
  std::uint32_t index = 0;  // chunk, or slot

  bool is_slot() const { return where == Where::window || where == Where::result; }
  // Of a chunk.
  Space space() const { return where == Where::input ? Space::input : Space::output; }
  friend bool operator==(const Spot&, const Spot&) = default;
};
std::string_view to_string(Spot::Where where) noexcept;
Spot chunk_spot(Space space, std::uint32_t chunk);

struct HostMove {
  HostAction action = HostAction::copy;
  int peer = kLocal;  // take: whose; give: to whom
  Spot from;
  Spot to;
  // take, give: the part of the bytes, from the end, that is the giver's to move.
  double givers_share = 0;

  friend bool operator==(const HostMove&, const HostMove&) = default;
};

// Operands are folded in the order in which they stand, from the left or balanced.
struct HostFold {
  struct Operand {
    int peer = kLocal;
    Spot from;
    bool raw = false;
    friend bool operator==(const Operand&, const Operand&) = default;
  };
  struct Put {
    int peer = kLocal;
    Spot to;  // a chunk of the peer
    friend bool operator==(const Put&, const Put&) = default;
  };
  Spot to;  // a chunk of this rank
  std::vector<Operand> operands;
  std::vector<Put> puts;
  bool keeps_result = false;  // in this rank's result slot, for those who take it
  bool finish = false;        // as in schedule::Op
  bool balanced = false;      // likewise

  friend bool operator==(const HostFold&, const HostFold&) = default;
};

// The moves in this order, then the fold.
struct HostPhase {
  std::vector<HostMove> moves;
  std::optional<HostFold> fold;

  friend bool operator==(const HostPhase&, const HostPhase&) = default;
};

struct HostForm {
  Program frame;  // this rank's program without its ops: which chunks it has
  Reach reach = Reach::window;
  std::vector<HostPhase> phases;
  std::vector<Spot> shown;  // by slot: chunks of this rank that others read; all in one space
  // Peers may work on this rank's own buffers: nothing that is shown is overwritten before its last
  // reader has read it. Depends on whether this rank works in place, which only it knows; a form that
  // is not for windows may run only when it is true on all ranks.
  bool unaliased = true;

  // The same on all ranks:
  std::vector<std::vector<std::uint64_t>> shown_extents;  // of each rank, by slot
  bool lopsided = false;      // some rank shows more, or less, than it takes
  std::uint32_t readers = 0;  // the most that any shown chunk has

  std::size_t meetings() const { return phases.size() - 1; }
  friend bool operator==(const HostForm&, const HostForm&) = default;
};

}  // namespace tutti::schedule
