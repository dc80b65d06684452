// tutti/work.hpp - one operation under way.
//
// A Work is a small handle that may be copied; the operation goes on when all handles are gone.
// Starting an operation never fails on the spot: whatever went wrong is in its Work.
//
// Thread-safety  any thread may call any method, several at once.
// Callbacks      run once, in the thread that completed the operation, with no lock held. They may
//                start operations, and must not wait for one.
//
//   tutti::Work sum = group->all_reduce_async(gradients, tutti::ReduceOp::sum);
//   compute_something_else();
//   tutti::Status status = sum.wait();
#pragma once

#include <chrono>
#include <functional>
#include <memory>
#include <string>

#include "tutti/status.hpp"

namespace tutti {
inline namespace [[gnu::visibility("default")]] v1 {

// What a finished receive learned; -1 and 0 for other operations.
struct Received {
  int source = -1;
  std::uint32_t tag = 0;
  std::size_t bytes = 0;
};

class Work {
 public:
  // Implemented by the engine.
  class State {
   public:
    virtual ~State() = default;
    virtual Status wait(std::chrono::nanoseconds timeout) = 0;
    virtual bool done() const = 0;
    virtual Status status() const = 0;
    virtual void on_complete(std::function<void(const Status&)> callback) = 0;
    virtual Received received() const = 0;
    // Operations on CPU memory know of no streams.
    virtual Status wait_on(void* /*stream*/) { return wait(std::chrono::nanoseconds::max()); }
    // The same as far as it takes no blocking: true when it is done, or the stream waits for it.
    virtual Result<bool> try_wait_on(void* /*stream*/) { return done(); }
    // Moves it on a little in this thread, unless another one does; never blocks. True if anything moved.
    virtual bool help() { return false; }
    // "all_reduce #3 of group 'a'", while it is not done.
    virtual std::string describe() const { return "another operation"; }
  };

  // A Work without an operation is done and ok.
  Work() = default;
  explicit Work(std::shared_ptr<State> state) : state_(std::move(state)) {}
  // A Work that is done already.
  static Work finished(Status status);

  // Blocks until the operation is done, driving it meanwhile. A timeout here gives up waiting with
  // Code::timed_out and leaves the operation under way.
  Status wait() { return wait(std::chrono::nanoseconds::max()); }
  Status wait(std::chrono::nanoseconds timeout) {
    return state_ ? state_->wait(timeout) : Status();
  }

  // For operations on device memory: what is put into `stream` (a CUstream or cudaStream_t) from now on
  // waits for the operation; this thread does not, unless the operation cannot be enqueued yet (the
  // first use of an allocation, behind operations on CPU memory, or where docs/gpu.md says so). The
  // status is that of enqueuing: a failure that comes later is in status() and Group::health. On CPU
  // memory the same as wait().
  Status wait_on(void* stream) { return state_ ? state_->wait_on(stream) : Status(); }

  // Never blocks.
  bool done() const { return !state_ || state_->done(); }
  // The outcome when done, ok before that.
  Status status() const { return state_ ? state_->status() : Status(); }
  Received received() const { return state_ ? state_->received() : Received(); }

  // Calls back on completion; at once, in this thread, when that has been.
  void on_complete(std::function<void(const Status&)> callback);

  // What is behind it, for the library itself; null: it is done and ok.
  const std::shared_ptr<State>& state() const { return state_; }

 private:
  std::shared_ptr<State> state_;
};

}  // namespace v1
}  // namespace tutti
