// bench/protocol.hpp - how a collective is timed, the same for tutti and for every peer.
//
// Depends on nothing, so that a program of any library can include it. One cell is measured so:
//
//   prepare (touch the buffers)          not timed; left out when caches are to stay warm
//   meet    (a barrier in shared memory) never the library under test
//   t0; the collective; t1               time of the iteration = the slowest rank's t1 - t0
//   inspect (check the result)           not timed; only where every iteration is checked
//
// and again, until the budget is spent; then median, p99 and min. Afterwards a block of calls back
// to back, without the barrier, gives the mean time and the CPU time of a call.
//
// Thread-safety  one Meeting object per rank; the memory behind it is shared.
#pragma once

#include <sched.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <new>
#include <thread>
#include <vector>

namespace tutti::bench {

inline double seconds_of(clockid_t clock) {
  timespec time{};
  ::clock_gettime(clock, &time);
  return static_cast<double>(time.tv_sec) + static_cast<double>(time.tv_nsec) * 1e-9;
}
inline double now_us() { return seconds_of(CLOCK_MONOTONIC) * 1e6; }
// Of all threads of this process.
inline double cpu_s() { return seconds_of(CLOCK_PROCESS_CPUTIME_ID); }

inline void relax() {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#else
  std::this_thread::yield();
#endif
}

// The CPUs that this process may use.
inline std::vector<int> own_cpus() {
  cpu_set_t set;
  CPU_ZERO(&set);
  std::vector<int> cpus;
  if (::sched_getaffinity(0, sizeof set, &set) == 0)
    for (int cpu = 0; cpu < CPU_SETSIZE; ++cpu)
      if (CPU_ISSET(cpu, &set)) cpus.push_back(cpu);
  return cpus;
}

inline bool pin_this_thread(int cpu) {
  cpu_set_t set;
  CPU_ZERO(&set);
  CPU_SET(cpu, &set);
  return ::sched_setaffinity(0, sizeof set, &set) == 0;
}

// With every thread that there is: a library's own threads get no core that others' have not, as
// where a launcher binds processes.
inline void pin_this_process(int cpu) {
  cpu_set_t set;
  CPU_ZERO(&set);
  CPU_SET(cpu, &set);
  std::error_code error;
  for (const auto& task : std::filesystem::directory_iterator("/proc/self/task", error))
    ::sched_setaffinity(std::atoi(task.path().filename().c_str()), sizeof set, &set);
}

// A barrier and a board for times in memory that all ranks have mapped (zero at first).
class Meeting {
 public:
  static constexpr int kMostIterations = 4096;

  static std::size_t bytes_for(int ranks) {
    return sizeof(Head) + static_cast<std::size_t>(ranks) * (sizeof(Flag) + kBoardBytes);
  }
  // `crowded`: more ranks than cores, so a waiting rank gives its core away at once.
  Meeting(void* memory, int rank, int ranks, bool crowded)
      : head_(static_cast<Head*>(memory)),
        flags_(reinterpret_cast<Flag*>(head_ + 1)),
        board_(reinterpret_cast<double*>(flags_ + ranks)),
        rank_(rank),
        ranks_(ranks),
        crowded_(crowded) {}

  int rank() const { return rank_; }
  int size() const { return ranks_; }
  bool crowded() const { return crowded_; }

  void sync() {
    const std::uint32_t round = head_->round.load(std::memory_order_acquire);
    if (head_->arrived.fetch_add(1) + 1 == static_cast<std::uint32_t>(ranks_)) {
      head_->arrived.store(0);
      head_->round.store(round + 1, std::memory_order_release);
      return;
    }
    wait([&] { return head_->round.load(std::memory_order_acquire) != round; });
  }
  // Waits without taking a core from whoever works: for phases in which some ranks are idle.
  void sync_asleep() {
    const std::uint32_t round = head_->round.load(std::memory_order_acquire);
    if (head_->arrived.fetch_add(1) + 1 == static_cast<std::uint32_t>(ranks_)) {
      head_->arrived.store(0);
      head_->round.store(round + 1, std::memory_order_release);
      return;
    }
    while (head_->round.load(std::memory_order_acquire) == round) ::usleep(500);
  }
  // The least that any barrier must do: everybody raises a flag and sees everybody's.
  void exchange_flags() {
    const std::uint64_t turn = ++turn_;
    flags_[rank_].value.store(turn, std::memory_order_release);
    for (int step = 1; step < ranks_; ++step) {
      const Flag& flag = flags_[(rank_ + step) % ranks_];
      wait([&] { return flag.value.load(std::memory_order_acquire) >= turn; });
    }
  }

  // Of each position the largest value of any rank; the same on all ranks.
  std::vector<double> largest(const std::vector<double>& mine) {
    return combined(mine, [](double a, double b) { return std::max(a, b); });
  }
  double largest(double mine) { return largest(std::vector<double>{mine}).front(); }
  double sum(double mine) {
    return combined({mine}, [](double a, double b) { return a + b; }).front();
  }

 private:
  static constexpr std::size_t kBoardBytes = kMostIterations * sizeof(double);
  struct alignas(128) Flag {
    std::atomic<std::uint64_t> value;
  };
  struct Head {
    alignas(128) std::atomic<std::uint32_t> arrived;
    alignas(128) std::atomic<std::uint32_t> round;
  };

  template <class Condition>
  void wait(Condition&& met) const {
    for (int polls = 0; !met(); ++polls) {
      if (crowded_ || polls > 20000)
        ::sched_yield();
      else
        relax();
    }
  }
  template <class Combine>
  std::vector<double> combined(const std::vector<double>& mine, Combine&& combine) {
    const auto row = [&](int rank) {
      return board_ + static_cast<std::size_t>(rank) * kMostIterations;
    };
    const std::size_t count = std::min<std::size_t>(mine.size(), kMostIterations);
    std::copy_n(mine.begin(), count, row(rank_));
    sync();
    std::vector<double> result(row(0), row(0) + count);
    for (int rank = 1; rank < ranks_; ++rank)
      for (std::size_t i = 0; i < count; ++i) result[i] = combine(result[i], row(rank)[i]);
    sync();  // before anybody writes the board again
    return result;
  }

  Head* head_;
  Flag* flags_;
  double* board_;
  int rank_;
  int ranks_;
  bool crowded_;
  std::uint64_t turn_ = 0;
};

// The middle one; of an even number the mean of the two in the middle.
inline double median_of(std::vector<double> values) {
  if (values.empty()) return 0;
  std::sort(values.begin(), values.end());
  const std::size_t half = values.size() / 2;
  return values.size() % 2 == 1 ? values[half] : (values[half - 1] + values[half]) / 2;
}
// The smallest value that at least `share` of all values do not exceed.
inline double quantile_of(std::vector<double> values, double share) {
  if (values.empty()) return 0;
  std::sort(values.begin(), values.end());
  const double place = std::ceil(share * static_cast<double>(values.size()));
  return values[static_cast<std::size_t>(std::max(place, 1.0)) - 1];
}

struct Effort {
  double budget_us = 100e3;  // for the timed iterations of one cell, preparation included
  int iterations = 0;        // 0: as many as the budget allows
  // An iteration is a block of calls without a barrier between them, its time their mean: what a
  // link sustains, where single calls would flatter one that has been idle.
  bool back_to_back = false;
  // What takes long is called a few times only, since what disturbs it is short beside it; and no
  // block of calls back to back follows.
  bool brief = false;
};

struct Timing {
  double median_us = 0;
  double p99_us = 0;
  double min_us = 0;
  double low_us = 0;           // a quarter of the iterations took no longer
  double back_to_back_us = 0;  // mean of calls without a barrier between them
  double cpu_s = 0;            // of this process, per call
  int iterations = 0;
};

inline int iterations_for(const Effort& effort, double round_us) {
  if (effort.iterations > 0) return std::min(effort.iterations, Meeting::kMostIterations);
  const int least = round_us > 300e3 ? 2 : round_us > (effort.brief ? 10e3 : 30e3) ? 3 : 5;
  const double fit = effort.budget_us / std::max(round_us, 0.05);
  return std::max(least, static_cast<int>(std::min<double>(fit, Meeting::kMostIterations)));
}

// Calls in a block; ten blocks fit into the budget where a call is short.
inline int block_for(const Effort& effort, double call_us) {
  if (!effort.back_to_back) return 1;
  return static_cast<int>(std::clamp(effort.budget_us / 10 / std::max(call_us, 0.05), 3.0, 1000.0));
}

struct Nothing {
  void operator()() const {}
};

// Everybody calls it alike. `M` is a Meeting or whatever has its sync, largest and rank.
template <class M, class Operation, class Prepare = Nothing, class Inspect = Nothing>
Timing measure(M& meeting, const Effort& effort, Operation&& operation, Prepare&& prepare = {},
               Inspect&& inspect = {}) {
  // Warm up: pages, plans, sockets; and learn how long a round takes at best. One round that was
  // interrupted must not make the whole cell a matter of two iterations.
  double call_us = 0;
  double round_us = 0;
  for (int i = 0; i < (round_us > (effort.brief ? 10e3 : 300e3) ? 1 : 3); ++i) {
    const double began = now_us();
    prepare();
    meeting.sync();
    const double t0 = now_us();
    operation();
    const double t1 = now_us();
    inspect();
    const double call = meeting.largest(t1 - t0);
    const double round = meeting.largest(now_us() - began);
    call_us = i == 0 ? call : std::min(call_us, call);
    round_us = i == 0 ? round : std::min(round_us, round);
  }
  const int block = block_for(effort, call_us);
  const int iterations = iterations_for(effort, std::max(call_us * block, round_us - call_us));
  // Small calls: a few more, so that spin budgets and branch predictors have settled.
  if (call_us < 1e3)
    for (int i = 0; i < std::min(iterations, 50); ++i) operation();

  std::vector<double> times(static_cast<std::size_t>(iterations));
  for (double& time : times) {
    prepare();
    meeting.sync();
    const double t0 = now_us();
    for (int i = 0; i < block; ++i) operation();
    time = (now_us() - t0) / block;
    inspect();
  }
  times = meeting.largest(times);
  Timing timing;
  timing.iterations = iterations;
  timing.median_us = median_of(times);
  timing.p99_us = quantile_of(times, 0.99);
  timing.min_us = *std::min_element(times.begin(), times.end());
  timing.low_us = quantile_of(times, 0.25);
  if (effort.brief) return timing;

  const double fit = effort.budget_us / 4 / std::max(timing.median_us, 0.05);
  const int calls = static_cast<int>(std::clamp(fit, 2.0, 2000.0));
  meeting.sync();
  const double cpu = cpu_s();
  const double t0 = now_us();
  for (int i = 0; i < calls; ++i) operation();
  const double spent = now_us() - t0;
  timing.cpu_s = (cpu_s() - cpu) / calls;
  timing.back_to_back_us = meeting.largest(spent / calls);
  return timing;
}

}  // namespace tutti::bench
