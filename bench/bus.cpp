// bench/bus.cpp - how long does a metrics all_reduce take beside a 64 MiB reduce_scatter?
//
//   TUTTI_TRANSPORT=tcp tutti run -n 4 build/bin/bench_bus      on one host
//   bench/hosts run 4 build/bin/bench_bus                       between hosts
//
// A row of 64 MiB reduce_scatters is started at once and runs for some seconds; meanwhile metrics
// are published, one step after the other, a pause between them. A step takes from publish to its
// sums; the slowest rank of each step counts. "alone" is the same without the reduce_scatters. The
// bus keeps its promise where p99 beside them stays under 10 ms.
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <thread>
#include <vector>

#include "bench/protocol.hpp"
#include "tutti/train/metrics_bus.hpp"
#include "tutti/tutti.hpp"

namespace {

using tutti::bench::now_us;

constexpr std::size_t kBulkBytes = 64UL << 20;
constexpr double kTotalUs = 4e6;
constexpr int kStepsAlone = 300;
constexpr auto kPause = std::chrono::milliseconds(2);

class Experiment {
 public:
  Experiment(tutti::Group& group, tutti::train::MetricsBus& bus)
      : group_(group),
        bus_(bus),
        output_(kBulkBytes / sizeof(float) / static_cast<std::size_t>(group.size())),
        input_(output_.size() * static_cast<std::size_t>(group.size()), 1.0F) {}

  void measure_alone() {
    check(group_.barrier());
    std::vector<double> times;
    for (int i = 0; i < kStepsAlone && ok_; ++i) times.push_back(step(true));
    print("alone", times, 0);
  }
  void measure_beside() {
    const int bulks = bulks_for(kTotalUs);
    all_done_ = false;
    check(group_.barrier());
    std::vector<double> times;
    const double begin = now_us();
    tutti::Work last;
    for (int i = 0; i < bulks; ++i) last = start_bulk();
    while (ok_ && !all_done_) times.push_back(step(last.done()));
    check(last.wait());
    print("beside", times, (now_us() - begin) / bulks);
  }
  bool ok() const { return ok_; }

 private:
  tutti::Work start_bulk() {
    return group_.reduce_scatter_async(tutti::ConstBuffer::of(input_), tutti::Buffer::of(output_),
                                       tutti::ReduceOp::sum);
  }
  int bulks_for(double total_us) {
    check(start_bulk().wait());  // the first touches memory and links
    double took_us = now_us();
    check(start_bulk().wait());
    took_us = now_us() - took_us;
    check(group_.all_reduce(tutti::Buffer::of(&took_us, 1), tutti::ReduceOp::max));
    return std::clamp(static_cast<int>(total_us / took_us), 4, 400);
  }
  // When all have come to the end of their reduce_scatters all learn it in the same step.
  double step(bool done) {
    bus_.add("done", done ? 1 : 0);
    bus_.add("loss_sum", 0.5);
    bus_.add("tokens", 1024);
    const double begin = now_us();
    check(bus_.publish(++steps_));
    const auto sums = bus_.take(true);
    const double took = now_us() - begin;
    check(sums.status());
    if (sums.ok()) all_done_ = (*sums)->find("done") == group_.size();
    std::this_thread::sleep_for(kPause);
    return took;
  }
  void print(const char* how, std::vector<double>& times, double bulk_us) {
    check(group_.all_reduce(tutti::Buffer::of(times), tutti::ReduceOp::max));
    if (!ok_ || group_.rank() != 0) return;
    std::sort(times.begin(), times.end());
    const auto at = [&](std::size_t per_cent) {
      return times[times.size() * per_cent / 100] / 1e3;
    };
    std::printf(" %8s %7zu %10.3f %10.3f %10.3f", how, times.size(), at(50), at(99),
                times.back() / 1e3);
    if (bulk_us > 0) std::printf(" %16.1f", bulk_us / 1e3);
    std::printf("\n");
    std::fflush(stdout);
  }
  void check(const tutti::Status& status) {
    if (status.ok()) return;
    if (ok_) std::fprintf(stderr, "bench_bus: %s\n", status.to_string().c_str());
    ok_ = false;
  }

  tutti::Group& group_;
  tutti::train::MetricsBus& bus_;
  std::vector<float> output_, input_;
  std::int64_t steps_ = 0;
  bool all_done_ = false;
  bool ok_ = true;
};

int measure(tutti::Group& group, tutti::train::MetricsBus& bus) {
  if (group.rank() == 0) {
    const char* transport = std::getenv("TUTTI_TRANSPORT");
    std::printf("# bench_bus: %d ranks, %zu cores, transport %s; slowest rank of each step\n",
                group.size(), tutti::bench::own_cpus().size(), transport ? transport : "auto");
    std::printf("# %7s %7s %10s %10s %10s %16s\n", "", "steps", "p50 (ms)", "p99 (ms)", "max (ms)",
                "64 MiB each (ms)");
  }
  Experiment experiment(group, bus);
  experiment.measure_alone();
  experiment.measure_beside();
  return experiment.ok() ? 0 : 1;
}

}  // namespace

int main(int count, char** words) {
  if (count > 1) {
    std::fprintf(stderr, "bench_bus: takes no arguments, not '%s'\n", words[1]);
    return 2;
  }
  auto group = tutti::Group::from_environment();
  if (!group.ok()) {
    std::fprintf(stderr, "bench_bus: %s\n", group.status().to_string().c_str());
    return 1;
  }
  auto bus = tutti::train::MetricsBus::create(**group, true);
  if (!bus.ok()) {
    std::fprintf(stderr, "bench_bus: %s\n", bus.status().to_string().c_str());
    return 1;
  }
  return measure(**group, **bus);
}
