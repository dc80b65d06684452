// engine/host_memory.hpp - memory in which the ranks of a group on one host meet, without a message.
//
// Each rank has a part that all others have mapped. It alone writes it; the others read.
//
//   lines    two, used in turn: "I have come to collective #s", with a hash of the call and either
//            up to 112 bytes of data or the place of this rank's buffers
//   details  the call spelled out, beside each line; read only when hashes differ
//   mark     how far this rank has come with the current collective, ever growing
//   windows  copies of data that peers cannot reach where it is
//
// Two lines suffice because no rank ends a collective before it has seen all others arrive: when
// one writes line #s+2, everybody has come to #s+1 and is done with #s. The same holds for the two
// windows (tests/unit/schedule/host_pipeline_test.cpp tries all orders). docs/formats/host_memory.md
// has the layout.
//
// Thread-safety  a rank's part is written, and a HostMemory used, by whoever holds the group's baton.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "engine/fingerprint.hpp"
#include "schedule/host/forms.hpp"
#include "schedule/host/limits.hpp"
#include "transport/endpoint.hpp"
#include "transport/link.hpp"

namespace tutti::engine {

inline constexpr std::uint64_t kHostMemoryMagic = 0x74736f685454;  // "TThost"

// A pair of cache lines: processors fetch the second together with the first. `sequence` is stored
// last.
struct alignas(128) Line {
  std::atomic<std::uint64_t> sequence;
  std::uint32_t call_hash;
  std::uint32_t access;  // Access bits
  std::byte payload[schedule::kLineBytes];
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
struct BufferPlaces {
  transport::MemoryRef source;  // region 0: not mapped
  transport::MemoryRef target;
  std::uint64_t address = 0;  // of the source, in its owner's memory
};
static_assert(sizeof(BufferPlaces) <= schedule::kLineBytes);

// One rank's part.
struct RankMemory {
  std::uint64_t magic;
  std::uint64_t token;    // random: who can read it by address has the right process
  std::uint64_t address;  // of this part, in its owner's memory
  Line lines[2];
  alignas(128) Fingerprint details[2];
  alignas(128) std::atomic<std::uint64_t> mark;
  alignas(4096) std::byte windows[2][schedule::kWindowBytes];
  std::byte pieces[schedule::kSlots][schedule::kSlotBytes];   // what peers are to read
  std::byte results[schedule::kSlots][schedule::kSlotBytes];  // what was folded of it
};

class HostMemory {
 public:
  struct Member {
    RankMemory* memory = nullptr;
    transport::Link* link = nullptr;  // null: this rank itself
    std::int64_t process = 0;         // whose memory the kernel lets us read; 0: it does not
  };
  // `owner` keeps the parts mapped; `others` are the world ranks of the other members; all ranks have
  // agreed on `facts`.
  HostMemory(int rank, std::vector<Member> members, std::vector<int> others,
             transport::Endpoint& endpoint, std::shared_ptr<void> owner,
             const schedule::HostFacts& facts);

  int rank() const { return rank_; }
  int size() const { return static_cast<int>(members_.size()); }
  RankMemory& own() const { return *own_; }
  const RankMemory& of(int peer) const { return *member(peer).memory; }
  transport::Link& link_to(int peer) const { return *member(peer).link; }
  std::int64_t process_of(int peer) const { return member(peer).process; }
  const schedule::HostFacts& facts() const { return facts_; }

  // Collective `sequence` begins: it takes its turn of what there are two of. Ranks count such turns
  // alike, whatever else they number in between.
  void open(std::uint64_t sequence) {
    if (sequence == opened_) return;
    opened_ = sequence;
    turn_ ^= 1;
  }
  // The turn of the collective that was opened last, or of the one before it.
  std::size_t turn_of(std::uint64_t sequence) const {
    return sequence == opened_ ? turn_ : turn_ ^ 1;
  }
  // The line for collective `sequence`, to be filled in and then published.
  Line& line(std::uint64_t sequence) const { return own_->lines[turn_of(sequence)]; }
  void publish(std::uint64_t sequence, const Fingerprint& call, std::uint32_t call_hash);
  // Takes the own line back: whoever comes to this collective now does not find this rank there.
  void retract(std::uint64_t sequence);
  bool arrived(int peer, std::uint64_t sequence) const {
    return line_of(peer, sequence).sequence.load(std::memory_order_acquire) == sequence;
  }
  const Line& line_of(int peer, std::uint64_t sequence) const {
    return of(peer).lines[turn_of(sequence)];
  }
  // A copy: its owner may write it at any time.
  Fingerprint call_of(int peer, std::uint64_t sequence) const {
    return of(peer).details[turn_of(sequence)];
  }
  // What a peer has called as collective `sequence`, if it was one of the last two to meet here.
  std::optional<Fingerprint> called(int peer, std::uint64_t sequence) const;

  // This rank's memory in words that all others understand (region 0: some of them cannot reach
  // it), and a peer's memory as it is mapped here (null: it is not). Both remember what they found.
  transport::MemoryRef locate(const std::byte* data, std::size_t bytes);
  std::byte* reach(int peer, const transport::MemoryRef& ref, std::size_t bytes);
  // This rank's memory is no longer lent: peers that have not noticed write there no more, where that can be
  // had.
  void withdraw(const std::byte* data, std::size_t bytes) { endpoint_.withdraw(data, bytes); }

  // Marks of all ranks grow alike, from collective to collective.
  std::uint64_t mark() const { return mark_; }
  void set_mark(std::uint64_t mark);
  bool reached(int peer, std::uint64_t mark) const {
    return of(peer).mark.load(std::memory_order_acquire) >= mark;
  }

 private:
  const Member& member(int peer) const { return members_[static_cast<std::size_t>(peer)]; }
  void wake_others();

  // What was found before; good as long as the version stands.
  struct KnownStretch {
    std::uint64_t version = 0;
    transport::SharedStretch stretch;
  };
  struct Known {
    std::uint64_t version = 0;
    std::uint64_t region = 0;
    std::byte* data = nullptr;  // where the region begins, here
    std::size_t bytes = 0;      // of it that is known to be reachable
  };

  // Somebody whose sleep can be seen without asking the link.
  struct Neighbour {
    const transport::Doorbell* bell;
    transport::Link* link;
  };

  int rank_;
  std::vector<Member> members_;
  std::vector<Neighbour> neighbours_;
  std::vector<int> others_;
  transport::Endpoint& endpoint_;
  std::shared_ptr<void> owner_;
  schedule::HostFacts facts_;
  KnownStretch own_stretch_;
  std::vector<Known> their_regions_;
  RankMemory* own_;
  std::uint64_t opened_ = 0;  // the collective that was, last;
  std::size_t turn_ = 0;      //   and its turn
  std::uint64_t mark_ = 0;
  std::uint32_t written_hashes_[2] = {0, 0};  // of the details that stand there
};

// Copies `bytes` from `address` of another process. False: the kernel refuses, or it is gone.
bool read_memory(std::int64_t process, std::uint64_t address, void* to, std::size_t bytes);

}  // namespace tutti::engine
