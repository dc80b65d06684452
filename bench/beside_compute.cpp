// bench/beside_compute.cpp - what does an asynchronous all_reduce cost the compute beside it?
//
//   tutti run -n 2 build/bin/bench_beside_compute [symmetric|plain]
//
// A compute loop of fixed work is timed alone, then with an all_reduce under way. Communication
// needs processor time; where no core is idle it must take it from the loop. So the loop may be
// slowed by as much as the library's own threads took (their CPU time, read from the kernel) and no
// more: the two columns should agree. "exposed" is what is left to wait for when the loop is over.
#include <cstdio>
#include <cstring>
#include <string>
#include <vector>

#include "bench/protocol.hpp"
#include "tutti/tutti.hpp"

namespace {

using tutti::bench::cpu_s;
using tutti::bench::median_of;
using tutti::bench::now_us;

constexpr int kRepeats = 15;

// Multiply-adds on a few kilobytes: bound by the core, not by memory.
class Compute {
 public:
  void run(long rounds) {
    for (long round = 0; round < rounds; ++round)
      for (float& value : values_) value = value * 0.999F + 0.001F;
  }
  // Rounds that take about this long alone. A core that has just begun to compute is slow, so the
  // first guess is corrected by what it turns out to take.
  long rounds_for(double time_us) {
    long rounds = 200;
    for (int guess = 0; guess < 4; ++guess) {
      const double t0 = now_us();
      run(rounds);
      rounds = static_cast<long>(static_cast<double>(rounds) * time_us / (now_us() - t0)) + 1;
    }
    return rounds;
  }
  float result() const { return values_[0]; }  // so that the loop is not optimised away

 private:
  std::vector<float> values_ = std::vector<float>(2048, 1.0F);
};

struct Sample {
  double compute_us = 0;
  double total_us = 0;
  double library_cpu_us = 0;  // of all threads but this one, while the loop ran
};

struct Pair {
  double alone_us = 0;
  double beside_us = 0;
  double slowed = 0;
  double cpu_share = 0;
  double exposed_us = 0;
};

double thread_cpu_us() { return tutti::bench::seconds_of(CLOCK_THREAD_CPUTIME_ID) * 1e6; }

class Experiment {
 public:
  Experiment(tutti::Group& group, tutti::Buffer buffer) : group_(group), buffer_(buffer) {}

  double all_reduce_us() {
    std::vector<double> times;
    for (int i = 0; i < kRepeats; ++i) {
      check(group_.barrier());
      const double t0 = now_us();
      check(group_.all_reduce(buffer_, tutti::ReduceOp::sum));
      times.push_back(now_us() - t0);
    }
    return slowest(median_of(times));
  }
  // Alone and beside an all_reduce in turn, so that a change of the machine's mood hits both.
  Pair compute(long rounds) {
    std::vector<double> alone, beside, slowed, cpu_share, exposed;
    for (int i = 0; i < kRepeats; ++i) {
      const Sample quiet = once(rounds, false);
      const Sample busy = once(rounds, true);
      alone.push_back(quiet.compute_us);
      beside.push_back(busy.compute_us);
      slowed.push_back(busy.compute_us / quiet.compute_us - 1);
      cpu_share.push_back(busy.library_cpu_us / busy.compute_us);
      exposed.push_back(busy.total_us - busy.compute_us);
    }
    return {slowest(median_of(alone)), slowest(median_of(beside)), slowest(median_of(slowed)),
            slowest(median_of(cpu_share)), slowest(median_of(exposed))};
  }
  long rounds_for(double time_us) {
    // The same work on all ranks.
    std::int64_t rounds = work_.rounds_for(time_us);
    check(group_.broadcast(tutti::Buffer::of(&rounds, 1), 0));
    return static_cast<long>(rounds);
  }
  bool ok() const { return ok_; }
  float result() const { return work_.result(); }

 private:
  Sample once(long rounds, bool beside) {
    check(group_.barrier());
    const double process = cpu_s() * 1e6;
    const double own = thread_cpu_us();
    const double t0 = now_us();
    tutti::Work sum;
    if (beside) sum = group_.all_reduce_async(buffer_, tutti::ReduceOp::sum);
    work_.run(rounds);
    const double t1 = now_us();
    const double others = (cpu_s() * 1e6 - process) - (thread_cpu_us() - own);
    check(sum.wait());
    return {t1 - t0, now_us() - t0, others};
  }
  double slowest(double value) {
    check(group_.all_reduce(tutti::Buffer::of(&value, 1), tutti::ReduceOp::max));
    return value;
  }
  void check(const tutti::Status& status) {
    if (status.ok()) return;
    if (ok_) std::fprintf(stderr, "bench_beside_compute: %s\n", status.to_string().c_str());
    ok_ = false;
  }

  tutti::Group& group_;
  tutti::Buffer buffer_;
  Compute work_;
  bool ok_ = true;
};

void print_head(int ranks, const std::string& memory) {
  std::printf("# bench_beside_compute: %d ranks on %zu cores, %s memory; medians, slowest rank\n",
              ranks, tutti::bench::own_cpus().size(), memory.c_str());
  std::printf("#%11s %14s %13s %13s %9s %15s %12s\n", "size", "all_reduce", "compute alone",
              "beside it", "slowed", "library's CPU", "exposed");
  std::printf("#%11s %14s %13s %13s %9s %15s %12s\n", "(B)", "alone (us)", "(us)", "(us)", "(%)",
              "(% of a core)", "(us)");
}

int measure(tutti::Group& group, const std::string& memory) {
  constexpr std::size_t kMost = 64UL << 20;
  tutti::SymmetricMemory symmetric;
  std::vector<char> plain;
  if (memory == "symmetric") {
    auto allocated = group.allocate(kMost);
    if (!allocated.ok()) {
      std::fprintf(stderr, "bench_beside_compute: %s\n", allocated.status().to_string().c_str());
      return 1;
    }
    symmetric = *allocated;
  } else {
    plain.resize(kMost);
  }
  void* const data = symmetric.data != nullptr ? symmetric.data : plain.data();
  std::memset(data, 0, kMost);
  if (group.rank() == 0) print_head(group.size(), memory);
  for (std::size_t bytes = 64UL << 10; bytes <= kMost; bytes *= 4) {
    Experiment experiment(group, {data, bytes / sizeof(float), tutti::Dtype::f32});
    const double alone_us = experiment.all_reduce_us();
    const long rounds = experiment.rounds_for(2 * alone_us + 2000);
    const Pair pair = experiment.compute(rounds);
    if (!experiment.ok() || experiment.result() < 0) return 1;
    if (group.rank() == 0)
      std::printf(" %11zu %14.1f %13.1f %13.1f %9.1f %15.1f %12.1f\n", bytes, alone_us,
                  pair.alone_us, pair.beside_us, 100 * pair.slowed, 100 * pair.cpu_share,
                  pair.exposed_us);
    std::fflush(stdout);
  }
  return 0;
}

}  // namespace

int main(int count, char** words) {
  const std::string memory = count > 1 ? words[1] : "symmetric";
  if (count > 2 || (memory != "symmetric" && memory != "plain")) {
    std::fprintf(stderr, "bench_beside_compute: say symmetric or plain, not '%s'\n",
                 memory.c_str());
    return 2;
  }
  auto group = tutti::Group::from_environment();
  if (!group.ok()) {
    std::fprintf(stderr, "bench_beside_compute: %s\n", group.status().to_string().c_str());
    return 1;
  }
  return measure(**group, memory);
}
