// transport/pulse.hpp - the thread by which a rank shows that it lives, and hears that others do.
//
// A process that computes, or whose window is full, polls nothing and still lives; one that is stopped
// keeps its sockets open and its memory mapped, and answers to the kernel's probes. So neither the
// kernel nor the engine can say who lives: a thread of every process beats, by itself, over every link,
// and looks whether the peers' have. It moves no message and takes no lock but a link's own.
//
//   every tick   beat (a count in the window, a small frame on a socket that has nothing to say),
//                then ask each link whether its peer was heard
//   silence      the time *that this process has lived* without hearing a peer: who was stopped himself,
//                or together with everybody, blames nobody for it
//   verdict      after dead_after and one beat of silence; a beat later everybody who is silent by then is
//                given up at once, so that ranks which are cut off from the same peers name the same
//
// Thread-safety  take_silent by the holder of the poll lock; standstill by any thread. Not to be touched,
//                nor destroyed, in a child of fork().
#pragma once

#include <atomic>
#include <condition_variable>
#include <deque>
#include <functional>
#include <map>
#include <mutex>
#include <thread>
#include <vector>

#include "core/clock.hpp"
#include "transport/link.hpp"
#include "transport/window.hpp"

namespace tutti::transport {

class Pulse {
 public:
  struct Options {
    Nanoseconds dead_after{0};                // 0: gives nobody up, but beats: others may
    Window* window = nullptr;                 // of this rank
    std::function<void()> on_silence;         // from the thread: take_silent has something
    std::function<void()> on_suspicion = {};  // likewise take_suspects
  };
  struct Watched {
    int peer = 0;
    Link* link = nullptr;
    Nanoseconds silence{0};
    bool given_up = false;
    bool suspected = false;
    // A rank that still joins others does not beat yet: silence counts from the first beat on, or
    // from when all have joined.
    bool beats = false;
  };

  // Sixteen ticks and more before anybody is given up; see the .cpp for how they add up.
  static Nanoseconds beat_every(Nanoseconds dead_after);

  Pulse(Options options, std::vector<Watched> watched);
  ~Pulse();
  // Code::out_of_memory: this process may not have one thread more.
  Status start();

  // One link more. Any thread.
  void watch(Watched watched);
  // Another rank finds a peer silent that this one has no link to. Any thread.
  void suspect(int peer);
  // Peers that are to be given up in a beat: others should hear of them before that.
  std::vector<int> take_suspects();

  // Everybody beats by now. Any thread.
  void expect_all() { expects_all_.store(true, std::memory_order_relaxed); }
  // Peers, ascending, that are to be given up.
  std::vector<int> take_silent();
  // How long this process has stood still, if that was for longer than `peer` waits and not long ago, and
  // it was not heard again since; else 0. Whoever is lost then has given us up. One that still beats
  // has not: it would have said so on the link, before its end.
  Nanoseconds standstill(int peer) const;

  // One turn of the thread; for tests.
  void tick(Nanoseconds now);

 private:
  void run();
  void judge(Nanoseconds now);
  bool is_standstill(Nanoseconds away) const;

  Options options_;
  Nanoseconds beat_;
  Nanoseconds tick_;
  mutable std::mutex watched_mutex_;  // of these two; the thread holds it for a tick
  std::vector<Watched> watched_;
  std::deque<std::atomic<std::int64_t>> heard_at_;  // of each that is watched: last
  bool first_look_ = true;                          // what came before the pulse began is no beat
  Nanoseconds beat_at_{0};
  Nanoseconds verdict_at_ = Nanoseconds::max();
  std::atomic<bool> expects_all_{false};
  std::atomic<std::int64_t> last_tick_{0};
  std::atomic<std::int64_t> stood_still_{0};  // for how long,
  std::atomic<std::int64_t> woke_at_{0};      //   until when

  std::mutex mutex_;
  std::condition_variable stopped_;
  bool stop_ = false;
  std::vector<int> silent_;          // to be given up
  std::vector<int> suspects_;        // to be told of
  std::map<int, Nanoseconds> told_;  // that others find silent, since when
  std::thread thread_;
};

}  // namespace tutti::transport
