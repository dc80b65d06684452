// engine/dependencies.hpp - works that have to be done before an operation begins (CallOptions::after).
//
// They may be of any group, and the operation waits for them in its own group's queue. No thread blocks
// meanwhile: the last work that ends wakes whoever steps that group, and whoever drives it drives the
// works, too.
//
//   all_reduce of 'a' ──done──▶ Dependencies ──wake──▶ Channel 'b': begins what it held
//
// On a device an operation can begin before they are done: its stream waits for theirs.
//
// Failure        of one of them is the operation's failure, and so its group's: the other ranks must not
//                wait for a call that this rank never makes.
// Thread-safety  any thread; watch once, put_before by the baton's holder.
#pragma once

#include <atomic>
#include <cstddef>
#include <functional>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <vector>

#include "core/spin_lock.hpp"
#include "tutti/work.hpp"

namespace tutti::engine {

class Dependencies : public std::enable_shared_from_this<Dependencies> {
 public:
  // Null: all of them are done, and well.
  static std::shared_ptr<Dependencies> of(std::span<const Work> works);

  // From here on they are counted. `wake` is called when the last one is done, and when one has failed.
  void watch(std::function<void()> wake);

  bool all_done() const { return open_.load(std::memory_order_acquire) == 0; }
  // And well: nothing speaks against beginning.
  bool all_clear() const { return all_done() && !failed_.load(std::memory_order_acquire); }
  // Of the first that failed; ok: none has so far.
  Status failure() const;
  // Moves some of them on, in this thread. True if anything moved.
  bool help();
  // Makes a stream of the device wait for those that are not done. False: for one of them it cannot yet.
  Result<bool> put_before(void* stream);
  // "all_reduce #3 of group 'a'", "… and 2 more": those that are not done.
  std::string describe() const;

 private:
  using States = std::vector<std::shared_ptr<Work::State>>;
  explicit Dependencies(States works) : works_(std::move(works)), open_(works_.size()) {}
  void note_end(const Status& status);

  const States works_;
  std::function<void()> wake_;
  std::atomic<std::size_t> open_;
  std::atomic<std::size_t> turn_{0};  // whose it is to be helped first
  std::size_t put_ = 0;               // so many are done, or a stream waits for them
  std::atomic<bool> failed_{false};
  mutable std::mutex mutex_;  // of the next
  Status failure_;
};

// All that the operations of one group wait for, for those who drive it.
class AwaitedWorks {
 public:
  void add(std::shared_ptr<Dependencies> works);
  // Moves some of them on, and what those wait for in their turn. True if anything moved.
  bool help();

 private:
  std::atomic<bool> any_{false};
  std::atomic<bool> helping_{false};
  SpinLock lock_;
  std::vector<std::shared_ptr<Dependencies>> works_;  // under the lock, like the next
  std::size_t turn_ = 0;
};

}  // namespace tutti::engine
