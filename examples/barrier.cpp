// Rank r is busy for r × 200 ms; nobody passes the barrier before the slowest has come.
//
//   tutti run -n 3 build/bin/examples/barrier
#include <chrono>
#include <thread>

#include "example.hpp"

using namespace example;
using std::chrono::milliseconds;

// Ranks of one host share this clock, so that their readings can be compared.
static std::int64_t now_ns() {
  return std::chrono::steady_clock::now().time_since_epoch() / std::chrono::nanoseconds(1);
}

int main() {
  auto group = join();
  const int rank = group->rank();

  std::int64_t first_start = now_ns();
  check(group->all_reduce(tutti::Buffer::of(&first_start, 1), tutti::ReduceOp::min));

  const milliseconds busy = rank * milliseconds(200);
  say("rank %d is busy for %d ms", rank, static_cast<int>(busy.count()));
  std::this_thread::sleep_for(busy);

  std::int64_t slowest_arrival = now_ns();
  check(group->barrier());
  const std::int64_t passed = now_ns();
  check(group->all_reduce(tutti::Buffer::of(&slowest_arrival, 1), tutti::ReduceOp::max));

  const milliseconds slowest = (group->size() - 1) * milliseconds(200);
  const bool late_enough = std::chrono::nanoseconds(passed - first_start) >= slowest;
  say("rank %d passed %s the slowest had come, %s %d ms after the start", rank,
      passed >= slowest_arrival ? "after" : "BEFORE", late_enough ? "at least" : "LESS THAN",
      static_cast<int>(slowest.count()));
  return late_enough && passed >= slowest_arrival ? 0 : 1;
}
