// bench/pipeline.cpp - does a pipeline's step take as long as it was simulated?
//
//   tutti run -n 4 build/bin/bench_pipeline                       on one host
//   bench/pipeline                                                there, by tcp and between hosts
//
// Stages sleep as if an accelerator computed, so that a few cores are enough; messages are real. What a
// message takes is measured before, in a pipeline that only goes forwards; the simulation gets that and the
// durations that were asked for. A step begins after a barrier and ends with the last rank: the median of
// the steps counts.
#include "tutti/pipeline.hpp"

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>
#include <vector>

#include "bench/protocol.hpp"
#include "bench/sleep.hpp"
#include "core/words.hpp"
#include "tutti/tutti.hpp"

namespace tutti::bench {
namespace {

using namespace tutti::pipeline;

struct PipelineBench {
  double forward_s = 0.02, backward_s = 0.04;  // of a rank's whole stage
  double weight_s = 0.02;                      // part of backward
  int micro_batches = 8;
  int virtual_stages = 2;  // of interleaved
  int steps = 5;
  std::size_t bytes = 1 << 20;  // that cross a boundary
};

[[noreturn]] void fail(int code, const std::string& what) {
  std::fprintf(stderr, "bench_pipeline: %s\n", what.c_str());
  std::_Exit(code);
}
void check(const Status& status) {
  if (!status.ok()) fail(1, status.to_string());
}

// ---- the command line

double seconds_in(const char* flag, const char* word) {
  const auto time = parse_duration(word);
  if (!time.ok()) fail(2, std::string(flag) + ": " + time.status().message());
  return std::chrono::duration<double>(*time).count();
}

int count_in(const char* flag, const char* word) {
  const auto count = parse_integer(word);
  if (!count.ok() || *count < 1 || *count > 4096)
    fail(2, std::string(flag) + " takes 1 … 4096, not '" + word + "'");
  return static_cast<int>(*count);
}

PipelineBench read(int count, char** words) {
  PipelineBench bench;
  for (int i = 1; i < count; i += 2) {
    const std::string flag = words[i];
    if (i + 1 == count) fail(2, flag + " lacks its value");
    const char* value = words[i + 1];
    if (flag == "--forward")
      bench.forward_s = seconds_in("--forward", value);
    else if (flag == "--backward")
      bench.backward_s = seconds_in("--backward", value);
    else if (flag == "--weight")
      bench.weight_s = seconds_in("--weight", value);
    else if (flag == "--micro-batches")
      bench.micro_batches = count_in("--micro-batches", value);
    else if (flag == "--virtual")
      bench.virtual_stages = count_in("--virtual", value);
    else if (flag == "--steps")
      bench.steps = count_in("--steps", value);
    else if (flag == "--bytes") {
      const auto bytes = parse_bytes(value);
      if (!bytes.ok() || *bytes == 0) fail(2, "--bytes '" + std::string(value) + "' is no size");
      bench.bytes = *bytes;
    } else
      fail(2, "there is no " + flag +
                  "; there are --forward --backward --weight --micro-batches --virtual --steps "
                  "--bytes");
  }
  if (bench.weight_s > bench.backward_s) fail(2, "--weight is a part of --backward");
  return bench;
}

// ---- what is measured

class SleepingStages : public StageCompute {
 public:
  SleepingStages(const PipelineBench& bench, int virtual_stages)
      : bench_(bench), share_(1.0 / virtual_stages) {}
  Status forward(const StagePass&) override { return nap(bench_.forward_s); }
  Status backward(const StagePass&) override { return nap(bench_.backward_s); }
  Status backward_input(const StagePass&) override {
    return nap(bench_.backward_s - bench_.weight_s);
  }
  Status backward_weight(const StagePass&) override { return nap(bench_.weight_s); }

 private:
  Status nap(double seconds) const {
    sleep_for(seconds * share_);
    return {};
  }
  const PipelineBench& bench_;
  double share_;
};

// Medians of the steps: of the slowest rank, and of where the ranks' time went on average.
PipelineTimes measure(Group& group, const PipelineBench& bench, PipelineKind kind,
                      int virtual_stages) {
  PipelineOptions options;
  options.kind = kind;
  options.micro_batches = bench.micro_batches;
  options.virtual_stages = virtual_stages;
  options.boundaries = {{{bench.bytes, Dtype::u8}}};
  auto runner = PipelineRunner::create(group, options);
  check(runner.status());
  SleepingStages stages(bench, virtual_stages);
  std::vector<double> steps, busy, waiting, bubble;
  for (int i = 0; i <= bench.steps; ++i) {
    check(group.barrier());
    const auto times = (*runner)->run(stages);
    check(times.status());
    double longest = times->step_s;
    double means[] = {times->busy_s, times->waiting_s, times->bubble_s};
    check(group.all_reduce(Buffer::of(&longest, 1), ReduceOp::max));
    check(group.all_reduce(Buffer::of(means, 3), ReduceOp::avg));
    if (i == 0) continue;  // the first meets cold memory
    steps.push_back(longest);
    busy.push_back(means[0]);
    waiting.push_back(means[1]);
    bubble.push_back(means[2]);
  }
  return {median_of(steps), median_of(busy), median_of(waiting), median_of(bubble)};
}

// What a message takes while its sender computes on: of two forwards in a row every stage waits for the
// first message; the second comes while the first forward lasts.
double message_s(Group& group, PipelineBench bench) {
  if (group.size() == 1) return 0;
  bench.micro_batches = 2;
  bench.steps = 15;
  const PipelineTimes times = measure(group, bench, PipelineKind::forward, 1);
  return times.waiting_s * group.size() / (group.size() - 1);
}

double simulated_s(const PipelineBench& bench, PipelineKind kind, const PipelineShape& shape,
                   double transfer_s) {
  const double v = shape.virtual_stages;
  const auto programs = build_pipeline(kind, shape);
  check(programs.status());
  const auto timeline = simulate_pipeline(
      *programs,
      {{{bench.forward_s / v, (bench.backward_s - bench.weight_s) / v, bench.weight_s / v}},
       transfer_s});
  check(timeline.status());
  return timeline->step_s;
}

void compare(Group& group, const PipelineBench& bench, PipelineKind kind, double transfer_s) {
  const int v = kind == PipelineKind::interleaved ? bench.virtual_stages : 1;
  const PipelineShape shape{group.size(), bench.micro_batches, v};
  const double predicted = simulated_s(bench, kind, shape, transfer_s);
  const PipelineTimes measured = measure(group, bench, kind, v);
  if (group.rank() != 0) return;
  // What a step takes beyond the sleeps that were asked for: the bubble, messages in it.
  const double compute = bench.micro_batches * (bench.forward_s + bench.backward_s);
  const double idle = predicted - compute, was_idle = measured.step_s - compute;
  std::printf("  %-12s %2d %10.1f %10.1f %+7.1f %% %9.1f %9.1f %+7.1f %% %9.1f %9.1f %9.1f\n",
              std::string(to_string(kind)).c_str(), v, predicted * 1e3, measured.step_s * 1e3,
              100 * (measured.step_s / predicted - 1), idle * 1e3, was_idle * 1e3,
              100 * (was_idle / idle - 1), measured.busy_s * 1e3, measured.waiting_s * 1e3,
              measured.bubble_s * 1e3);
  std::fflush(stdout);
}

}  // namespace
}  // namespace tutti::bench

int main(int count, char** words) {
  using namespace tutti::bench;
  const PipelineBench bench = read(count, words);
  auto group = tutti::Group::from_environment();
  if (!group.ok()) fail(1, group.status().to_string());
  const double transfer_s = message_s(**group, bench);
  if ((*group)->rank() == 0)
    std::printf(
        "# bench_pipeline: %d stages, %d micro-batches, forward %g ms, backward %g ms (weights %g); %zu "
        "bytes across a boundary in %.3f ms\n"
        "# %-12s %2s %10s %10s %9s %9s %9s %9s %9s %9s %9s   ms; the last three: mean of ranks\n",
        (*group)->size(), bench.micro_batches, bench.forward_s * 1e3, bench.backward_s * 1e3,
        bench.weight_s * 1e3, bench.bytes, transfer_s * 1e3, "schedule", "v", "step sim.",
        "measured", "off", "idle sim.", "measured", "off", "busy", "waiting", "bubble");
  for (const auto kind :
       {tutti::pipeline::PipelineKind::gpipe, tutti::pipeline::PipelineKind::one_f_one_b,
        tutti::pipeline::PipelineKind::interleaved, tutti::pipeline::PipelineKind::zb_h1})
    compare(**group, bench, kind, transfer_s);
  return 0;
}
