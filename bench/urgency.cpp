// bench/urgency.cpp - how long do small and urgent operations take beside large ones of another group?
//
//   tutti run -n 2 build/bin/bench_urgency                               shared memory
//   TUTTI_TRANSPORT=tcp tutti run -n 2 build/bin/bench_urgency           loopback
//   bench/hosts up 2 1000; bench/hosts run 2 build/bin/bench_urgency     between hosts
//
// A row of 64 MiB all_reduces is started at once and runs for some seconds; meanwhile each rank times, one
// after the other with a pause between, an all_reduce of 4 KiB and a message of 1 MiB to the next rank
// while one comes from the rank before: from when the last rank has come to it until the last has its
// result, by one clock, so all ranks are on one machine (emulated hosts are). "alone" is the same without
// anything beside it; "alike" has both groups of the same urgency; "urgent" is what Urgency is for.
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <thread>
#include <vector>

#include "bench/protocol.hpp"
#include "tutti/tutti.hpp"

namespace {

using tutti::Buffer;
using tutti::ConstBuffer;
using tutti::Group;
using tutti::Urgency;
using tutti::bench::now_us;

constexpr std::size_t kBulkBytes = 64UL << 20;
constexpr std::size_t kSmallBytes = 4 << 10;
constexpr std::size_t kMessageBytes = 1 << 20;
constexpr double kTotalUs = 4e6;
constexpr int kStepsAlone = 200;
constexpr auto kPause = std::chrono::milliseconds(2);

bool failed = false;
void check(const tutti::Status& status) {
  if (!status.ok() && !failed)
    std::fprintf(stderr, "bench_urgency: %s\n", status.to_string().c_str());
  failed = failed || !status.ok();
}

std::shared_ptr<Group> copy_of(Group& group, Urgency urgency) {
  auto made = group.duplicate({.urgency = urgency});
  check(made.status());
  return made.ok() ? *made : nullptr;
}

// When a rank came to its operations, and when it had their results.
class Moments {
 public:
  void begin() { begins_us_.push_back(now_us()); }
  void end() { ends_us_.push_back(now_us()); }
  // From the last rank's coming to the last one's end, sorted.
  std::vector<double> of_all(Group& group) {
    for (auto* each : {&begins_us_, &ends_us_})
      check(group.all_reduce(Buffer::of(*each), tutti::ReduceOp::max));
    std::vector<double> took_us(begins_us_.size());
    for (std::size_t i = 0; i < took_us.size(); ++i) took_us[i] = ends_us_[i] - begins_us_[i];
    std::sort(took_us.begin(), took_us.end());
    return took_us;
  }

 private:
  std::vector<double> begins_us_, ends_us_;
};

class Steps {
 public:
  explicit Steps(Group& group)
      : group_(group),
        values_(kSmallBytes / sizeof(float)),
        sent_(kMessageBytes / sizeof(float), 1.0F),
        come_(sent_.size()) {}

  // One of each. When all say that they are done all learn it in the same step.
  bool step(bool done) {
    values_.assign(values_.size(), done ? 1.0F : 0.0F);
    small_.begin();
    check(group_.all_reduce_async(Buffer::of(values_), tutti::ReduceOp::min).wait());
    small_.end();
    const int size = group_.size(), rank = group_.rank();
    message_.begin();
    tutti::Work recv = group_.irecv(Buffer::of(come_), (rank + size - 1) % size);
    check(group_.send(ConstBuffer::of(sent_), (rank + 1) % size));
    check(recv.wait());
    message_.end();
    std::this_thread::sleep_for(kPause);
    return values_[0] > 0.5F || failed;
  }

  void print(const char* how, double bulk_us) {
    const std::vector<double> small = small_.of_all(group_), message = message_.of_all(group_);
    if (failed || group_.rank() != 0) return;
    const auto at = [](const std::vector<double>& times, std::size_t per_cent) {
      return times[times.size() * per_cent / 100] / 1e3;
    };
    std::printf(" %8s %6zu %9.3f %9.3f %9.3f %9.3f", how, small.size(), at(small, 50),
                at(small, 99), at(message, 50), at(message, 99));
    if (bulk_us > 0) std::printf(" %12.1f", bulk_us / 1e3);
    std::printf("\n");
    std::fflush(stdout);
  }

 private:
  Group& group_;
  std::vector<float> values_, sent_, come_;
  Moments small_, message_;
};

// As many as fill the time, by the slowest rank's pace.
int bulks_for(Group& bulk, std::vector<float>& values) {
  double took_us = 0;
  for (int i = 0; i < 2; ++i) {
    took_us = now_us();
    check(bulk.all_reduce(Buffer::of(values), tutti::ReduceOp::max));
    took_us = now_us() - took_us;
  }
  check(bulk.all_reduce(Buffer::of(&took_us, 1), tutti::ReduceOp::max));
  return std::clamp(static_cast<int>(kTotalUs / took_us), 4, 400);
}

void measure_beside(Group& group, const char* how, Urgency few, Urgency many) {
  const auto urgent = copy_of(group, few), bulk = copy_of(group, many);
  if (failed) return;
  std::vector<float> values(kBulkBytes / sizeof(float), 1.0F);
  const int bulks = bulks_for(*bulk, values);
  Steps steps(*urgent);
  check(group.barrier());
  const double begin = now_us();
  tutti::Work last;
  for (int i = 0; i < bulks; ++i)
    last = bulk->all_reduce_async(Buffer::of(values), tutti::ReduceOp::max);
  while (!failed && !steps.step(last.done())) {
  }
  check(last.wait());
  steps.print(how, (now_us() - begin) / bulks);
}

void measure_alone(Group& group) {
  Steps steps(group);
  for (int i = 0; i < kStepsAlone && !failed; ++i) (void)steps.step(false);
  steps.print("alone", 0);
}

}  // namespace

int main(int count, char** words) {
  if (count > 1) {
    std::fprintf(stderr, "bench_urgency: takes no arguments, not '%s'\n", words[1]);
    return 2;
  }
  auto group = Group::from_environment();
  check(group.status());
  if (failed) return 1;
  if ((*group)->rank() == 0) {
    const char* transport = std::getenv("TUTTI_TRANSPORT");
    std::printf(
        "# bench_urgency: %d ranks, %zu cores, transport %s; ms from the last rank's coming to the last one's end\n",
        (*group)->size(), tutti::bench::own_cpus().size(), transport ? transport : "auto");
    std::printf("# %7s %6s %19s %19s %12s\n", "", "", "4 KiB all_reduce", "1 MiB message",
                "64 MiB each");
    std::printf("# %7s %6s %9s %9s %9s %9s\n", "", "steps", "p50", "p99", "p50", "p99");
  }
  measure_alone(**group);
  measure_beside(**group, "alike", Urgency::normal, Urgency::normal);
  measure_beside(**group, "urgent", Urgency::urgent, Urgency::bulk);
  return failed ? 1 : 0;
}
