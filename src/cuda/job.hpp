// cuda/job.hpp - what one launch does: plain data, read alike by host code and by kernels.
//
// A collective on device memory is: ranks enter, each does its phase (copies and at most one fold, in no
// order), ranks leave. A rank's phase reads what other ranks show it and writes what they let it write.
// Where that lies, every rank tells every other by a *post*, in the other's own addresses.
//
//   Enter::resolved   the host knows all addresses already, and has met the others: just work
//   Enter::posted     peers have entered; what they posted to this rank lies in host memory
//   Enter::met        a kernel before this one, `meet`, has entered; posts lie in device memory
//   Enter::meet       this kernel enters itself: posts, raises its flag, waits for all flags
//   Leave::by_stream  what comes next in the stream sees to it
//   Leave::meet       the last block raises this rank's flag and waits for everybody's
//
// Meeting inside a kernel counts with an epoch that lies in device memory, so that a captured launch
// can be replayed. A post carries a tag, a hash of the call: ranks that differ do nothing but report it,
// and leave. A launch that gives up, by the abort word or a poisoned flag, reports that and raises no
// flag, moves no epoch and writes no `done` any more.
//
// With Enter::meet all blocks of all ranks wait for each other, so they must fit on the device at once.
// Otherwise there may be any number of blocks.
#pragma once

#include <cstdint>

namespace tutti::cuda {

// More ranks on a host go through host memory: a launch's parameters have 4 KiB, and cost time.
inline constexpr int kMostRanks = 16;

// Threads of a block, and bytes of one place that a block takes at once when there is much to do (of
// elements that are not 4 bytes long, half of it or less: kernels/elements.hpp).
inline constexpr int kBlockThreads = 512;
inline constexpr std::uint64_t kTileBytes = 32 * 1024;

// More than any number that is waited for: who finds it in place of one gives up.
inline constexpr std::uint64_t kPoison = std::uint64_t{1} << 62;

// What rank p tells rank r. `source`: where r reads; `target`: where r writes; 0 where r does neither.
struct alignas(16) Post {
  std::uint64_t source;
  std::uint64_t target;
  std::uint64_t tag;
  std::uint64_t spare;
};

// A place in memory: an address (peer < 0), or so many bytes behind what that peer posted.
struct Place {
  std::uint64_t at;
  std::int32_t peer;
  std::uint32_t raw;  // of an operand: reduce::Operand::raw
};

struct Copy {
  Place from;        // behind the peer's source
  std::uint64_t to;  // an address of this rank
  std::uint64_t bytes;
};

// Operands are folded as reduce::fold does, and written to every target; a target may be an operand,
// unless the fold widens. set_reduction (cuda/reduction.hpp) fills in the last six.
struct Fold {
  Place operands[kMostRanks];
  // Of a peer: behind its target. One that posted none is left out by a fold that copies: it fetches for itself.
  Place targets[kMostRanks];
  std::int32_t operand_count;
  std::int32_t target_count;
  std::uint64_t bytes;    // of an operand; a target of a fold that widens has more
  double scalar;          // premul_sum
  std::int32_t ranks;     // avg divides by it
  std::uint8_t op;        // ReduceOp as the kernel is to do it: reduce::kernel_op
  std::uint8_t copies;    // the one operand is copied bit by bit
  std::uint8_t widens;    // targets are of the accumulation type
  std::uint8_t balanced;  // not from the left, and that makes a difference
};

// Which kernel does it: the rarer folds have their own.
constexpr bool is_shaped(const Fold& fold) { return fold.widens != 0 || fold.balanced != 0; }

enum class Enter : std::uint8_t { resolved, posted, met, meet };
enum class Leave : std::uint8_t { by_stream, meet };

// Where ranks meet inside kernels. Flags of different ranks are kFlagStride words apart.
inline constexpr int kFlagStride = 16;
struct Meeting {
  std::uint64_t* entered;      // flags of all ranks: how often each has entered
  std::uint64_t* left;         // and left
  Post* posts;                 // [from · ranks + to]
  std::uint64_t* epoch;        // of this rank alone: how often it has left
  std::uint32_t* finished;     // of this rank alone: blocks that are through; 0 between launches
  const std::uint32_t* abort;  // host word: not 0 when waiting is over for good
};

// Of this rank alone, in device memory: how one block tells the others what it has read of host memory.
struct Handout {
  std::uint64_t ticket;  // of the launch that the rest is of; written last
  std::uint64_t aborted;
  Post posts[kMostRanks];
};

// What a launch has found, written to a host word at once, with its ticket. 0: nothing. Of an abort, the
// peer is one that was waited for; of a difference, the first that differs.
enum class Fault : std::uint8_t { none, differs, aborted };
constexpr Fault fault_of(std::uint64_t word) { return static_cast<Fault>(word & 0xff); }
constexpr int peer_of(std::uint64_t word) { return static_cast<int>(word >> 8 & 0xff); }
constexpr std::uint64_t ticket_of(std::uint64_t word) { return word >> 16; }

struct Phase {
  std::int32_t ranks;
  std::int32_t rank;
  Enter enter;
  Leave leave;
  std::uint16_t copy_count;
  std::uint16_t spare;
  std::uint64_t ticket;  // unlike that of the launch before
  std::uint64_t* begun;  // Enter::meet and `meet`: host word that becomes `ticket` then; null: none
  std::uint64_t* done;  // Leave::meet: host word that becomes `ticket` when all is over; null: none
  std::uint64_t* fault;  // host word for a fault, written before `done`; null: nobody looks
  Meeting meeting;       // Enter::met, Enter::meet, Leave::meet; Enter::posted: `abort` alone
  const Post* posts;     // Enter::posted: those to this rank, one per rank, in host memory
  Handout* handout;      // Enter::posted
  std::uint64_t tags[kMostRanks];  // that each rank's post must carry
  Post mine[kMostRanks];           // Enter::meet and `meet`: what this rank posts, by rank
  Copy copies[kMostRanks];
  Fold fold;  // bytes 0: none
};
static_assert(sizeof(Phase) <= 4096, "a launch's parameters");

}  // namespace tutti::cuda
