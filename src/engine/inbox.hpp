// engine/inbox.hpp - what any thread hands to whoever steps a group: messages, calls, the failure.
//
// All under one lock, because a call is refused by the failure that came before it and ended by the
// one that comes after it: there is no moment in between.
//
// Thread-safety  any thread, any method.
#pragma once

#include <atomic>
#include <deque>
#include <vector>

#include "core/spin_lock.hpp"
#include "engine/numbers.hpp"
#include "engine/operation.hpp"
#include "engine/point_to_point.hpp"
#include "engine/segments.hpp"
#include "transport/link.hpp"
#include "tutti/status.hpp"

namespace tutti::engine {

// A message of the group, as a poller found it.
struct Incoming {
  int peer = 0;
  transport::Header header;
  Segment segment;
};

class Inbox {
 public:
  // False: the group has failed, and nobody wants it any more.
  bool put(const Incoming& message);
  // As put, but also after a failure: goodbyes are for whoever asks why.
  void put_always(const Incoming& message);
  // Gives the operation its number and queues it. The failure, if the group has one.
  Status put(Operation operation);
  Status put(std::vector<Posting> postings);

  // The number of a call that begins without being queued. No other call may start meanwhile.
  std::uint64_t take_sequence() {
    const std::uint64_t sequence = next_sequence_.load(std::memory_order_relaxed);
    next_sequence_.store(sequence + 1, std::memory_order_relaxed);
    return sequence;
  }
  // The next call gets this one. Nothing may be under way.
  void set_next_sequence(std::uint64_t sequence) {
    next_sequence_.store(sequence, std::memory_order_relaxed);
  }
  // How many collectives on device memory were put so far.
  void set_last_ticket(std::uint64_t ticket) {
    last_ticket_.store(ticket, std::memory_order_relaxed);
  }
  std::uint64_t last_ticket() const { return last_ticket_.load(std::memory_order_relaxed); }
  std::uint64_t next_sequence() const { return next_sequence_.load(std::memory_order_relaxed); }
  bool has_queued() const { return queued_.load(std::memory_order_relaxed) != 0; }
  bool has_news() const { return has_news_.load(std::memory_order_acquire); }

  // Moves what has come since the last time into the lists, which must be empty. False: nothing has.
  bool take(std::vector<Incoming>& messages, std::vector<Posting>& postings);
  // The next operation in line; false: there is none, or the group has failed.
  bool take_next(Operation& next);

  // The first failure counts. False: there was one before.
  bool fail(const Status& status);
  // To be called once the others have been told.
  void announce_failure();
  bool has_failed() const { return failed_.load(std::memory_order_acquire); }
  Status failure() const;
  // Everything that is still waiting, for the group's end.
  struct Rest {
    std::deque<Operation> operations;
    std::vector<Incoming> messages;
    std::vector<Posting> postings;
  };
  // Into `rest`, which must be empty but for what an earlier call brought; takes no memory.
  void take_rest(Rest& rest);

 private:
  mutable SpinLock lock_;
  std::vector<Incoming> messages_;
  std::deque<Operation> operations_;
  std::vector<Posting> postings_;
  Status failure_;
  std::atomic<std::size_t> queued_{0};  // operations
  std::atomic<std::uint64_t> next_sequence_{kSetUpSequences + 1};
  std::atomic<std::uint64_t> last_ticket_{0};
  std::atomic<bool> failed_{false};
  std::atomic<bool> has_news_{false};
};

}  // namespace tutti::engine
