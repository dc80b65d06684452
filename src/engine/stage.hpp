// engine/stage.hpp - memory in which the ranks of a group on one host meet, without a message.
//
// Each rank has a *stand* that all others have mapped. It alone writes it; the others read.
//
//   lines    two, used in turn: "I have come to collective #s", with a hash of the call and either
//            up to 112 bytes of data or the place of this rank's buffers
//   details  the call spelled out, beside each line; read only when hashes differ
//   mark     how far this rank has come with the pieces of the current collective, ever growing
//   windows  copies of data that peers cannot reach where it is
//
// Two lines suffice because no rank ends a collective before it has seen all others arrive: when
// one writes line #s+2, everybody has come to #s+1 and is done with #s. The same holds for the two
// one-shot windows. docs/formats/stage.md has the layout.
//
// Thread-safety  a stand is written, and a Stage used, by whoever holds the group's baton.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "engine/fingerprint.hpp"
#include "transport/endpoint.hpp"
#include "transport/link.hpp"

namespace tutti::engine {

inline constexpr std::size_t kMaxStageRanks = 64;
inline constexpr std::size_t kLineBytes = 112;           // of payload
inline constexpr std::size_t kOneShotBytes = 64 * 1024;  // of a one-shot window
inline constexpr std::size_t kSlotBytes = 128 * 1024;    // of a slot of the pipeline
inline constexpr std::size_t kPipeSlots = 2;
inline constexpr std::uint64_t kStandMagic = 0x646e6174735454;  // "TTstand"

// A pair of cache lines: processors fetch the second together with the first. `sequence` is stored
// last.
struct alignas(128) Line {
  std::atomic<std::uint64_t> sequence;
  std::uint32_t print;   // hash of the fingerprint
  std::uint32_t access;  // Access bits
  std::byte payload[kLineBytes];
};
static_assert(sizeof(Line) == 128);

// What peers may do with this rank's buffers in this collective.
enum Access : std::uint32_t {
  kSourceMapped = 1,  // what they read lies in symmetric memory
  kTargetMapped = 2,  // so does what they write
  kSourceWhole = 4,   // what they read is one piece
  kUnaliased = 8,     // nothing is overwritten here before the others have read it
  kHopeful = 16,      // the window was left empty, in the hope that nobody needs it
  kAllAccess = 31,
};

// The payload of a line that carries no data.
struct Places {
  transport::MemoryRef source;  // region 0: not mapped
  transport::MemoryRef target;
  std::uint64_t address = 0;  // of the source, in its owner's memory
};
static_assert(sizeof(Places) <= kLineBytes);

struct Stand {
  std::uint64_t magic;
  std::uint64_t token;    // random: who can read it by address has the right process
  std::uint64_t address;  // of this stand, in its owner's memory
  Line lines[2];
  alignas(128) Fingerprint details[2];
  alignas(128) std::atomic<std::uint64_t> mark;
  alignas(4096) std::byte one_shot[2][kOneShotBytes];
  std::byte pieces[kPipeSlots][kSlotBytes];   // what peers are to read
  std::byte results[kPipeSlots][kSlotBytes];  // what was folded of it
};

class Stage {
 public:
  struct Seat {
    Stand* stand = nullptr;
    transport::Link* link = nullptr;  // null: this rank itself
    std::int64_t process = 0;         // whose memory the kernel lets us read; 0: it does not
  };
  // `memory` keeps the stands mapped; `members` are the world ranks of the others.
  Stage(int rank, std::vector<Seat> seats, std::vector<int> others,
        const transport::Endpoint& endpoint, std::shared_ptr<void> memory);

  int rank() const { return rank_; }
  int size() const { return static_cast<int>(seats_.size()); }
  Stand& own() const { return *own_; }
  const Stand& of(int peer) const { return *seats_[static_cast<std::size_t>(peer)].stand; }
  transport::Link& link_to(int peer) const { return *seats_[static_cast<std::size_t>(peer)].link; }
  std::int64_t process_of(int peer) const { return seats_[static_cast<std::size_t>(peer)].process; }
  // Whether every rank can read every other's memory by the kernel's help. Agreed by all.
  bool can_read_memory() const { return can_read_memory_; }
  void allow_reading_memory(bool allowed) { can_read_memory_ = allowed; }
  // Whether ranks have to take turns on the cores, so that every meeting is dear. Agreed by all.
  bool crowded() const { return crowded_; }
  void set_crowded(bool crowded) { crowded_ = crowded; }

  // The line for collective `sequence`, to be filled in and then published.
  Line& line(std::uint64_t sequence) const { return own_->lines[sequence % 2]; }
  void publish(std::uint64_t sequence, const Fingerprint& call, std::uint32_t print);
  // Takes the own line back: whoever comes to this collective now does not find this rank there.
  void retract(std::uint64_t sequence);
  bool arrived(int peer, std::uint64_t sequence) const {
    return line_of(peer, sequence).sequence.load(std::memory_order_acquire) == sequence;
  }
  const Line& line_of(int peer, std::uint64_t sequence) const {
    return of(peer).lines[sequence % 2];
  }
  const Fingerprint& call_of(int peer, std::uint64_t sequence) const {
    return of(peer).details[sequence % 2];
  }

  // This rank's memory in words that all others understand (region 0: some of them cannot reach
  // it), and a peer's memory as it is mapped here (null: it is not). Both remember what they found.
  transport::MemoryRef locate(const std::byte* data, std::size_t bytes);
  std::byte* reach(int peer, const transport::MemoryRef& ref, std::size_t bytes);

  // Marks of all ranks grow alike, from collective to collective.
  std::uint64_t mark() const { return mark_; }
  void set_mark(std::uint64_t mark);
  bool reached(int peer, std::uint64_t mark) const {
    return of(peer).mark.load(std::memory_order_acquire) >= mark;
  }

 private:
  void rouse_others();

  // One region that was found before; good as long as the version stands.
  struct Known {
    std::uint64_t version = 0;
    std::uint64_t region = 0;
    std::byte* data = nullptr;  // where the region begins, here
    std::size_t bytes = 0;      // of it that is known to be reachable
  };

  int rank_;
  std::vector<Seat> seats_;
  std::vector<int> others_;
  const transport::Endpoint& endpoint_;
  std::shared_ptr<void> memory_;
  Known own_region_;
  std::vector<Known> their_regions_;
  Stand* own_;
  std::uint64_t mark_ = 0;
  std::uint32_t written_prints_[2] = {0, 0};  // of the details that stand there
  bool can_read_memory_ = false;
  bool crowded_ = false;
};

// Copies `bytes` from `address` of another process. False: the kernel refuses, or it is gone.
bool read_memory(std::int64_t process, std::uint64_t address, void* to, std::size_t bytes);

}  // namespace tutti::engine
