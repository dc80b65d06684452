// apps/pretrain_gpt/prefetch.hpp - tokens of the next micro-batches, read in a thread of their own beside compute.
//
// Ordering       whoever takes them in the order of `next` finds them there; another place may be asked for at any
//                time (a step that is computed again), and reading goes on from there.
// Thread-safety  one thread takes. `read` is called in the thread that reads, and nowhere else; `next` is pure.
// Failure        of a read, what it throws included: take() of that place returns it.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <deque>
#include <functional>
#include <mutex>
#include <thread>

#include "data.hpp"

namespace pretrain {

// Which micro-batch of this rank's, in the step before which so many sequences were consumed.
struct MicroPlace {
  std::uint64_t sequences = 0;
  int micro = 0;
  bool operator==(const MicroPlace&) const = default;
};

class Prefetch {
 public:
  using Read = std::function<tutti::Result<TokenBatch>(const MicroPlace&)>;
  using Next = std::function<MicroPlace(const MicroPlace&)>;

  // At most `depth` are kept. Reading begins with the first take.
  Prefetch(Read read, Next next, std::size_t depth);
  // Waits for a read that is under way.
  ~Prefetch();
  Prefetch(const Prefetch&) = delete;
  Prefetch& operator=(const Prefetch&) = delete;

  tutti::Result<TokenBatch> take(const MicroPlace& place);
  // For how long take() waited since this was last asked.
  double take_waited_s();

 private:
  void run();
  tutti::Result<TokenBatch> read_safely(const MicroPlace& place) const;

  Read read_;
  Next next_;
  std::size_t depth_;
  double waited_s_ = 0;  // of the thread that takes

  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<tutti::Result<TokenBatch>> ready_;
  MicroPlace first_;    // of ready_; where that is empty, of what is read next
  MicroPlace to_read_;  // next
  std::uint64_t restarts_ = 0;
  bool reads_ = false;  // no failure yet, and somebody has asked
  bool ends_ = false;
  std::thread thread_;
};

}  // namespace pretrain
