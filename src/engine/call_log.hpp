// engine/call_log.hpp - tells of a group's collectives: the flight recorder, the trace, the launcher's
// board, and other ranks that ask what this one is doing.
//
// A blocking call that ends at once is over before anybody could look, so it is told more cheaply:
// one record at its end, and the board hears of one a millisecond.
//
// Thread-safety  report, answer: any thread. All else: the baton's holder.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <string>

#include "core/board.hpp"
#include "core/clock.hpp"
#include "core/spin_lock.hpp"
#include "engine/device_times.hpp"
#include "engine/fingerprint.hpp"
#include "engine/members.hpp"
#include "engine/operation.hpp"
#include "trace/recorder.hpp"
#include "tutti/status.hpp"

namespace tutti::engine {

class Engine;

class CallLog {
 public:
  CallLog(Engine& engine, const Members& members) : engine_(engine), members_(members) {}
  ~CallLog();
  CallLog(const CallLog&) = delete;
  CallLog& operator=(const CallLog&) = delete;

  // Knows when collectives ran on a device.
  void time_with(std::shared_ptr<DeviceTimes> times) { times_ = std::move(times); }

  // An operation at the head of the queue waits for other works, by name.
  void waits(const Operation& operation, const std::string& for_what);
  // An operation from the queue. Fills in when it began, if there is a trace.
  void begun(Operation& operation);
  // `mapped`: all its buffers were where every rank can reach them.
  void ended(const Operation& operation, const Status& status, bool mapped);

  // A blocking call that its caller steps.
  void begun_at_once(Operation& operation);
  void ended_at_once(const Operation& operation, bool mapped);
  // It takes longer: from here on it is like any other.
  void took_longer(const Operation& operation);

  // Sends and receives that are not done.
  void set_open_messages(std::size_t open) {
    open_messages_.store(static_cast<std::uint32_t>(open), std::memory_order_relaxed);
  }
  // The last collective that was begun, and whether it is under way.
  ActivityReport report() const;
  // The same for a rank that asks. Of those who ask a late one the first speaks of it, for a while.
  ActivityReport answer(int asker, Nanoseconds now);
  // What the next one waits for, in words.
  std::string held_for() const;
  // Another one is still under way: on the device several can be.
  void go_on() { running_.store(true, std::memory_order_relaxed); }
  // Nothing is under way any more.
  void stop() { running_.store(false, std::memory_order_relaxed); }

 private:
  trace::Record record_of(trace::Event event, const Operation& operation) const;
  void remember(const Operation& operation);
  void trace(const Operation& operation, const Status& status, bool mapped);
  void tell_board(const Operation& operation, BoardState state);

  Engine& engine_;
  const Members& members_;
  std::shared_ptr<DeviceTimes> times_;  // null: nothing is traced there

  mutable SpinLock lock_;  // of last_call_ and held_for_
  Fingerprint last_call_;
  std::string held_for_;
  int speaker_ = -1;  // and of these two
  Nanoseconds speaks_until_{0};
  std::uint32_t last_hash_ = 0;  // of last_call_; written by the baton's holder only
  std::atomic<std::uint64_t> last_sequence_{0};
  std::atomic<bool> running_{false};
  std::atomic<bool> held_{false};  // the next one waits for other works
  std::atomic<std::uint32_t> open_messages_{0};

  // Of a blocking call in its caller's hands.
  std::uint64_t began_ticks_ = 0;
  std::uint64_t last_told_ticks_ = 0;  // when the board heard of one
  bool told_ = false;                  //   and whether it heard of this one
  trace::Record record_;
  std::uint32_t record_hash_ = 0;  // of the call that `record_` tells of, when it has no name
  trace::Tickets tickets_;
};

}  // namespace tutti::engine
