// engine/work_state.hpp - the engine's side of a tutti::Work.
//
// Thread-safety  any thread may wait, ask or add a callback; complete() is called once, without the
//                group's baton, so that callbacks may start operations.
#pragma once

#include <atomic>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "core/clock.hpp"
#include "tutti/types.hpp"
#include "tutti/work.hpp"

namespace tutti::engine {

class WorkState;

// Who makes progress for a waiter.
class Driver {
 public:
  virtual ~Driver() = default;
  // Drives the engine in this thread until the work is done or the timeout has passed.
  virtual void drive(const WorkState& work, Nanoseconds timeout) = 0;
  // The same until it is on the device, and a stream can wait for it there.
  virtual void drive_to_device(const WorkState& work) = 0;
  // One round of that, for somebody who waits for something else. True if anything moved.
  virtual bool help() = 0;
  // Whether anybody drives while no caller does.
  virtual bool goes_on_alone() const = 0;
  virtual const std::string& group_name() const = 0;
};

// How a stream is made to wait for a work on device memory.
class StreamGate {
 public:
  virtual ~StreamGate() = default;
  virtual bool is_launched() const = 0;
  // Puts a wait for it into the stream; false: nothing can wait there before it is launched.
  virtual Result<bool> try_wait_on(void* stream) = 0;
  // Whether the host is to wait instead of a stream of the caller's (cuda/traffic.hpp: duties).
  virtual bool is_for_host() const { return false; }
};

class WorkState final : public Work::State {
 public:
  explicit WorkState(std::shared_ptr<Driver> driver) : driver_(std::move(driver)) {}

  // Of the collective in its group, for traces; 0: messages. Set before anybody else has it.
  void set_call(Collective collective, std::uint64_t number) {
    collective_ = collective;
    number_ = number;
  }
  std::uint64_t number() const { return number_; }

  // Of a work on device memory. Set before anybody else has it.
  void set_gate(std::shared_ptr<StreamGate> gate) { gate_ = std::move(gate); }
  // Whether a stream can wait for it without this thread's help.
  bool is_launched() const;

  Status wait(std::chrono::nanoseconds timeout) override;
  Status wait_on(void* stream) override;
  Result<bool> try_wait_on(void* stream) override;
  bool help() override;
  std::string describe() const override;
  bool done() const override { return done_.load(std::memory_order_seq_cst); }
  Status status() const override;
  void on_complete(std::function<void(const Status&)> callback) override;
  Received received() const override;

  // Ends the operation and runs the callbacks. The first call counts.
  void complete(const Status& status, const Received& received = {});

 private:
  std::shared_ptr<Driver> driver_;
  std::optional<Collective> collective_;  // absent: messages
  std::uint64_t number_ = 0;
  std::atomic<bool> done_{false};
  mutable std::mutex mutex_;
  std::shared_ptr<StreamGate> gate_;  // until it is done
  Status status_;
  Received received_;
  std::vector<std::function<void(const Status&)>> callbacks_;
};

}  // namespace tutti::engine
