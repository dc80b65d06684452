// transport/memory_link.hpp - a link over two windows: one source for inproc and shm.
//
//   my window, lane of the peer            the peer's window, lane of mine
//   ┌ ring ───────────┐   slot, slot, …    ┌ consumed ┐
//   │ publish         │ ─────────────────▶ │ poll     │
//   └ arena           ┘                    └──────────┘
//   ◀─── bell: "loan 7 is done" (in the peer's ring) ───
//
// Up to kInlineBytes ride in the slot. Larger payloads that the peer can reach (same process, or
// inside symmetric memory that it has mapped) are lent where they are; others are copied into a
// block of the arena, as much as fits. A receiver that holds most of the blocks copies what comes
// next out of the arena at once: no group can keep another's messages from passing. Where channels differ
// in urgency, those that give way leave some slots and blocks to the others.
//
// Thread-safety  as Link. The send lock covers everything that is written into the own lane but
//                `consumed`, which belongs to poll.
// Trust          the peer can write its window at any time, also after it was looked at: what it says is
//                copied once, checked, and only then used. What it must not say ends the link.
#pragma once

#include <atomic>
#include <deque>
#include <memory>
#include <string>
#include <vector>

#include "core/log.hpp"
#include "core/spin_lock.hpp"
#include "transport/buffer_pool.hpp"
#include "transport/link.hpp"
#include "transport/regions.hpp"
#include "transport/urgencies.hpp"
#include "transport/window.hpp"

namespace tutti::transport {

// What a peer is accused of that hands over memory under a number that is none, or is taken.
inline constexpr const char* kBadRegion = "memory under a number that it may not use";

// Decides when a published slot is seen: the simulator's seam. Null: at once.
class Visibility {
 public:
  virtual ~Visibility() = default;
  virtual bool visible(int from, int to, std::uint64_t slot) = 0;
};

class MemoryLink final : public Link {
 public:
  struct Ends {
    std::string_view name;      // of the transport; outlives the link
    bool same_process = false;  // all memory is within reach
    int self = 0;               // like `mine`, the endpoint's to fill in
    int peer = 0;
    std::shared_ptr<Window> mine = nullptr;
    std::shared_ptr<Window> theirs = nullptr;
    int lane_of_peer = 0;  // in my window
    int lane_of_self = 0;  // in theirs
  };
  MemoryLink(Ends ends, RegionTable& regions, Log log, Visibility* visibility);

  std::string_view name() const override { return ends_.name; }
  bool shares_memory() const override { return true; }
  bool same_process() const { return ends_.same_process; }
  int peer() const { return ends_.peer; }
  // Small data finds a block of its own; more would keep large blocks from groups that have
  // arrived.
  std::size_t eager_bytes() const override { return kSmallBytes; }
  Sent send(const Header& header, const void* payload, std::size_t bytes,
            std::uint64_t token) override;
  void set_urgency(std::uint32_t channel, Urgency urgency) override;
  void release(std::uint64_t lease) override;
  bool revoked(std::uint64_t lease) const override;
  bool poll(MessageSink& sink) override;
  void forget(std::uint32_t channel) override;
  bool heard() override;
  void give_up(MessageSink& sink, const Status& why) override;
  MemoryRef share(const void* data, std::size_t bytes) const override;
  std::byte* reach(const MemoryRef& ref, std::size_t bytes) const override;
  void rouse() override;
  const Doorbell* doorbell() const override { return &ends_.theirs->head().doorbell; }
  std::int64_t process() const override {
    return ends_.same_process ? 0 : ends_.theirs->head().pid;
  }

  // The endpoint's calls. `lose`: the peer is gone; poll reports it after what had been published.
  void lose(Status why);
  // The peer sent `what`, which it must not: poll ends the link with Code::corrupt.
  void distrust(const char* what);
  // Tells a peer in this process of a region, and a peer elsewhere that its region is mapped here.
  void tell_region(std::uint64_t id, std::shared_ptr<Mapping> mapping);
  void tell_mapped(std::uint64_t id);
  // Publishes what was queued, as far as there is room. True when nothing is left.
  bool flush();
  // Takes back everything that is lent and wakes the peer: this rank is about to leave.
  void depart();

 private:
  struct Loan {
    std::uint64_t lease = 0;  // 0: free
    std::uint64_t token = 0;
    std::uint32_t channel = 0;
    bool forgotten = false;
  };
  struct Queued {
    Header header;
    std::string payload;
  };

  bool has_room(std::size_t most);
  void look_at_consumed();
  bool drain();
  void publish(Header header, const void* inlined, std::size_t bytes, std::size_t payload_bytes);
  void publish_note(const Header& header, const LoanNote& note, std::size_t payload_bytes);
  void knock(bool urgent);
  void send_bell(std::uint32_t what, const void* payload, std::size_t bytes);

  Sent send_large(const Header& header, const void* payload, std::size_t bytes, std::uint64_t token,
                  Urgency urgency);
  Sent send_lent(const Header& header, const MemoryRef& where, std::size_t bytes,
                 std::uint64_t token);
  bool send_copied(const Header& header, const void* payload, std::size_t bytes, Urgency urgency);
  int take_block(std::size_t bytes, Urgency urgency);

  bool take(MessageSink& sink);
  void deliver(MessageSink& sink, const Slot& slot);
  bool end(MessageSink& sink, const Status& why);
  const char* flaw_in_note(const Header& header, const LoanNote& note) const;
  void on_bell(MessageSink& sink, const Header& header, const std::byte* payload);
  void on_region(const std::byte* payload);
  void end_loan(MessageSink& sink, std::uint64_t lease);
  const std::byte* locate(const LoanNote& note, std::size_t bytes) const;
  void hold(const LoanNote& note, std::size_t bytes, Payload& payload);
  std::atomic<std::uint32_t>* held_count(std::uint64_t lease);
  bool next_is_there() const;
  bool found_room();

  Ends ends_;
  RegionTable& regions_;
  Log log_;
  Visibility* visibility_;
  PairLane& out_;                             // my lane: what I publish
  PairLane& in_;                              // the peer's lane for me; read only
  std::uint64_t head_ = 0;                    // next slot to take; poll only
  BufferPool pool_;                           // payloads that were copied out of the peer's arena
  std::atomic<std::uint32_t> held_small_{0};  // blocks of the peer's arena that wait for release
  std::atomic<std::uint32_t> held_large_{0};

  mutable SpinLock lock_;  // everything below, up to down_
  std::uint64_t tail_ = 0;
  std::uint64_t consumed_seen_ = 0;
  std::uint32_t rung_ = 0;
  std::vector<Loan> loans_;
  std::vector<std::uint16_t> free_loans_;
  std::vector<std::uint64_t> block_leases_;  // 0: free
  std::vector<std::uint64_t> acks_;
  std::deque<Queued> queue_;
  Urgencies urgencies_;
  std::size_t asked_for_ = 0;  // slots of which some have to be free for whoever was refused

  std::atomic<bool> backlog_{false};  // acks_ or queue_ hold something: poll looks without the lock
  std::atomic<bool> asked_for_room_{false};  // a send was refused, or waits in queue_
  std::atomic<bool> down_{false};
  std::atomic<const char*> flaw_{nullptr};  // the first thing that the peer must not have sent
  Status lost_;                             // poll only
  bool is_lost_ = false;
  bool given_up_ = false;
  std::uint64_t pulse_seen_ = 0;  // the pulse thread's
};

}  // namespace tutti::transport
