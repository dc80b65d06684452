#include "group/calibrate.hpp"

#include <sched.h>
#include <sys/uio.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <set>
#include <system_error>
#include <thread>

#include "core/files.hpp"
#include "core/sockets.hpp"
#include "core/threads.hpp"
#include "reduce/fold.hpp"

namespace tutti::group {
namespace {

using std::chrono::milliseconds;
using tuner::Curve;
using tuner::Sample;

constexpr std::size_t kSizes[] = {4 << 10, 16 << 10, 64 << 10, 256 << 10,
                                  1 << 20, 4 << 20,  16 << 20};
constexpr std::size_t kLargest = 16 << 20;
// A sample is a batch of this length at least, so that reading the clock does not count.
constexpr double kBatch = 20e-6;
constexpr std::size_t kBatches = 60;
// Of the time that a machine is measured in.
constexpr double kPerSize = 1.0 / 50;
constexpr double kPerMeeting = 1.0 / 16;
// A waiting rank gives way after so many looks when there are more ranks than processors.
constexpr int kLooks = 16;
constexpr int kMostThreads = 64;
constexpr std::size_t kTcpBytes = 64 << 10;  // fits into the buffers of a connection

// How long this thread has stood in the queue of a processor: the second number of schedstat.
double run_delay_s() {
  const std::string text = read_text("/proc/thread-self/schedstat");
  const std::string_view ran = first_word(text);
  const auto waited = first_number(std::string_view(text).substr(ran.size()));
  return static_cast<double>(waited.value_or(0)) * 1e-9;
}

struct Free {
  void operator()(void* memory) const { std::free(memory); }
};
using Memory = std::unique_ptr<void, Free>;

Memory touched(std::size_t bytes) {
  Memory memory(std::aligned_alloc(4096, bytes));
  if (memory) std::memset(memory.get(), 0, bytes);
  return memory;
}

template <class Body>
double time_of(int times, Body& body) {
  const double start = now_s();
  for (int i = 0; i < times; ++i) {
    body();
    // What nobody reads afterwards would not be copied at all.
    std::atomic_signal_fence(std::memory_order_seq_cst);
  }
  return (now_s() - start) / times;
}

// Seconds of one run of `body`, several times, after one run for the caches.
template <class Body>
void sample(std::size_t bytes, const Budget& budget, std::vector<Sample>& samples, Body body) {
  const double first = std::max(1e-9, (body(), time_of(1, body)));
  const int times = static_cast<int>(std::clamp(kBatch / first, 1.0, 1e4));
  std::vector<double> found;
  do {
    found.push_back(time_of(times, body));
  } while (found.size() < kBatches && budget.left_s() > 0);
  for (const double seconds : undisturbed(std::move(found)))
    samples.push_back({static_cast<double>(bytes), seconds});
}

// `body(bytes)` for every size that the time allows.
template <class Body>
Curve measure_curve(const Budget& budget, Body body) {
  std::vector<Sample> samples;
  for (const std::size_t bytes : kSizes) {
    if (budget.left_s() <= 0) break;
    sample(bytes, budget.share(kPerSize), samples, [&] { body(bytes); });
  }
  return Curve::fit(samples);
}

Curve measure_fold(void* into, const void* from, const Budget& budget) {
  const reduce::Folding folding{Dtype::f32, {}, false, 1};
  const reduce::Operand operands[] = {{into, false}, {from, false}};
  return measure_curve(budget, [&](std::size_t bytes) {
    reduce::fold(folding, into, operands, bytes / sizeof(float));
  });
}

// Becomes empty where the kernel does not let a process read another's memory, as it does not even
// for itself then.
void measure_pull(void* into, void* from, const Budget& budget, Curve& pull) {
  bool permitted = true;
  Curve found = measure_curve(budget, [&](std::size_t bytes) {
    const iovec here{into, bytes};
    const iovec there{from, bytes};
    permitted &=
        ::process_vm_readv(::getpid(), &here, 1, &there, 1, 0) == static_cast<ssize_t>(bytes);
  });
  if (!permitted || !found.empty()) pull = permitted ? std::move(found) : Curve();
}

void stay_on(int cpu) {
  cpu_set_t set;
  CPU_ZERO(&set);
  CPU_SET(cpu, &set);
  // A processor that went away meanwhile is no harm.
  (void)::sched_setaffinity(0, sizeof set, &set);
}

// Threads that publish a round and wait for everybody's, over and over.
class MeetingTrial {
 public:
  MeetingTrial(int ranks, const std::vector<int>& cpus, const Budget& budget)
      : flags_(static_cast<std::size_t>(ranks)),
        cpus_(cpus),
        gives_way_(ranks > static_cast<int>(cpus.size())),
        budget_(budget) {}

  double seconds() {
    std::vector<std::thread> threads;
    try {
      for (std::size_t rank = 0; rank < flags_.size(); ++rank)
        threads.push_back(start_quiet_thread("tutti-calibrate", [this, rank] { live(rank); }));
    } catch (const std::system_error&) {
      given_up_.store(true);
    }
    // Not by the clock of a rank: on a busy machine one round may take a scheduler's tick.
    if (!given_up_.load())
      std::this_thread::sleep_for(std::chrono::duration<double>(budget_.left_s()));
    stop_.store(true, std::memory_order_relaxed);
    for (std::thread& thread : threads) thread.join();  // bounded: they stop with the budget
    return given_up_.load() || batches_.empty() ? 0 : typical(std::move(batches_));
  }

 private:
  struct alignas(128) Flag {
    std::atomic<std::uint64_t> round{0};
  };
  static constexpr std::uint64_t kRounds = 16;  // in a batch, whose mean is a sample

  void live(std::size_t rank) {
    stay_on(cpus_[rank % cpus_.size()]);
    double start = now_s();
    for (std::uint64_t round = 1;; ++round) {
      const bool ends_batch = rank == 0 && round % kRounds == 0;
      if (rank == 0 && stop_.load(std::memory_order_relaxed)) last_.store(round);
      flags_[rank].round.store(round, std::memory_order_release);
      if (!await_all(round)) return;
      if (ends_batch) {
        const double now = now_s();
        // The first batch waits for threads that are just being made.
        if (round > kRounds) batches_.push_back((now - start) / kRounds);
        start = now;
      }
      // Rank 0 said it before it published the round, so everybody ends after the same one.
      if (last_.load() == round) return;
    }
  }

  bool await_all(std::uint64_t round) const {
    for (const Flag& flag : flags_)
      for (int looks = 0; flag.round.load(std::memory_order_acquire) < round;)
        if (++looks >= kLooks && gives_way_) {
          if (given_up_.load(std::memory_order_relaxed)) return false;
          ::sched_yield();
        } else if (looks % 1024 == 0 && given_up_.load(std::memory_order_relaxed)) {
          return false;
        }
    return true;
  }

  std::vector<Flag> flags_;
  const std::vector<int>& cpus_;
  bool gives_way_;
  Budget budget_;
  std::atomic<bool> stop_{false};
  std::atomic<std::uint64_t> last_{0};
  std::atomic<bool> given_up_{false};
  std::vector<double> batches_;  // of rank 0
};

// A barrier of 4 and of 8 processes on 2 cores took 4.0 and 8.7 µs where as many threads met in 1.4
// and 3.5 (KVM guest, Sapphire Rapids, 2026-11-15).
constexpr double kProcessesOverThreads = 2.6;
// By rank. More means that somebody else had the cores, for a scheduler's tick at a time: that is not
// what meetings cost, and a table that believed it would avoid them at any price.
constexpr double kDearestMeeting = 3e-6;

Curve measure_meetings(const std::vector<int>& cpus, const Budget& budget) {
  const int cores = static_cast<int>(cpus.size());
  std::set<int> numbers;
  for (const int ranks : {2, cores, 2 * cores, 4 * cores})
    if (ranks >= 2) numbers.insert(std::min(ranks, kMostThreads));
  std::vector<Sample> samples;
  for (const int ranks : numbers) {
    double seconds = measure_meeting(ranks, cpus, budget);
    // Threads of one process take turns faster than processes do.
    if (ranks > cores) seconds *= kProcessesOverThreads;
    // On a busy machine the threads may never have met.
    if (seconds == 0) seconds = tuner::built_in_machine().meet_seconds(ranks);
    seconds = std::min(seconds, kDearestMeeting * ranks);
    samples.push_back({static_cast<double>(ranks), seconds});
  }
  return Curve::fit(samples);
}

}  // namespace

double now_s() { return static_cast<double>(steady_clock().now().count()) * 1e-9; }

double Budget::left_s() const {
  return static_cast<double>((end_ - steady_clock().now()).count()) * 1e-9;
}

Budget Budget::part(Nanoseconds most) const {
  Budget inner(most);
  inner.end_ = std::min(inner.end_, end_);
  return inner;
}

Budget Budget::share(double part_of_all) const {
  return part(std::chrono::duration_cast<Nanoseconds>(all_ * part_of_all));
}

std::vector<double> undisturbed(std::vector<double> seconds) {
  std::sort(seconds.begin(), seconds.end());
  seconds.resize(std::min(seconds.size(), (seconds.size() + 3) / 4));
  return seconds;
}

double typical(std::vector<double> seconds) {
  const std::vector<double> fast = undisturbed(std::move(seconds));
  return fast.empty() ? 0 : fast[fast.size() / 2];
}

// One thread is both ends of a connection on loopback, so that nothing of it overlaps.
double measure_tcp_byte(const Budget& budget) {
  auto near = SocketAddress::parse("127.0.0.1:0");
  auto listener = near.ok() ? listen_on(*near, 1) : near.status();
  auto bound = listener.ok() ? local_address(listener->get()) : listener.status();
  const Nanoseconds deadline = deadline_after(steady_clock().now(), milliseconds(200));
  auto sender = bound.ok() ? connect_to(*bound, deadline) : bound.status();
  auto receiver = sender.ok() ? accept_from(listener->get()) : sender.status();
  if (!receiver.ok() || !*receiver) return 0;
  // Whoever else came first is not measured, and gets nothing.
  const auto theirs = peer_address(receiver->get());
  const auto ours = local_address(sender->get());
  if (!theirs.ok() || !ours.ok() || theirs->to_string() != ours->to_string()) return 0;
  std::vector<std::byte> memory(kTcpBytes);
  std::vector<double> found;
  bool good = true;
  const auto there = [&] {
    good &= write_fully(sender->get(), memory.data(), memory.size(), deadline).ok() &&
            read_fully(receiver->get(), memory.data(), memory.size(), deadline).ok();
  };
  do {
    found.push_back(time_of(1, there));
  } while (good && found.size() < kBatches && budget.left_s() > 0);
  return good ? typical(std::move(found)) / (2.0 * kTcpBytes) : 0;
}

double measure_meeting(int ranks, const std::vector<int>& cpus, const Budget& budget) {
  return cpus.empty() ? 0 : MeetingTrial(ranks, cpus, budget.share(kPerMeeting)).seconds();
}

Disturbance::Disturbance() : start_s_(now_s()), delay_s_(run_delay_s()) {}

double Disturbance::share() const {
  return (run_delay_s() - delay_s_) / std::max(1e-6, now_s() - start_s_);
}

tuner::Machine measure_machine(const std::vector<int>& cpus, const Budget& budget) {
  tuner::Machine machine = tuner::built_in_machine();
  machine.cores = static_cast<int>(cpus.size());
  const auto take = [](Curve found, Curve& into) {
    if (!found.empty()) into = std::move(found);
  };
  const Memory into = touched(kLargest);
  const Memory from = touched(kLargest);
  if (into && from) {
    take(measure_curve(budget,
                       [&](std::size_t bytes) { std::memcpy(into.get(), from.get(), bytes); }),
         machine.copy);
    take(measure_fold(into.get(), from.get(), budget), machine.fold);
    measure_pull(into.get(), from.get(), budget, machine.pull);
  }
  if (const double byte_s = measure_tcp_byte(budget.share(kPerSize)); byte_s > 0)
    machine.tcp.byte_s = byte_s;
  take(measure_meetings(cpus, budget), machine.meet);
  return machine;
}

}  // namespace tutti::group
