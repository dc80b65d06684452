// A rank that does what its argument says; the tests look at the trace and the dumps that it
// leaves.
//
//   well       steps of compute and collectives on two groups
//   bare       one collective, no steps, no compute
//   threads    three ranks in this process, each a thread; no launcher
//   late       the same, but rank 1 comes 100 ms late to every step, as a busy machine makes nobody
//   mismatch   after 5 steps rank 2 calls broadcast where the others call all_reduce
//   killed     after 5 steps rank 1 kills itself
//   stuck      after 5 steps rank 1 never comes; the others give up
#include <signal.h>

#include <atomic>
#include <chrono>
#include <cstdio>
#include <cstring>
#include <string>
#include <thread>
#include <vector>

#include "tutti/tutti.hpp"

namespace {

using tutti::Buffer;
using tutti::ReduceOp;
using tutti::Status;

void burn(std::chrono::microseconds time) {
  const auto until = std::chrono::steady_clock::now() + time;
  while (std::chrono::steady_clock::now() < until) {
  }
}

struct Rank {
  std::shared_ptr<tutti::Group> world, pairs;
  std::string manner;
  std::vector<float> big = std::vector<float>(1 << 16, 1.0F);
  std::vector<float> small = std::vector<float>(16, 1.0F);

  Status step(int number) {
    const std::int64_t begin = tutti::trace::now_ns();
    if (manner == "late" && world->rank() == 1)
      std::this_thread::sleep_for(std::chrono::milliseconds(100));
    tutti::CallOptions call;
    call.name = "big one";
    tutti::Work work;
    {
      tutti::trace::Span outer(world->trace(), "outer");
      work = world->all_reduce_async(Buffer::of(big), ReduceOp::max, call);
      tutti::trace::Span inner(world->trace(), "inner");
      burn(std::chrono::microseconds(500));
    }
    if (Status status = work.wait(); !status.ok()) return status;
    if (Status status = pairs->all_reduce(Buffer::of(small), ReduceOp::max); !status.ok())
      return status;
    if (auto* trace = world->trace()) {
      trace->step(number, begin, tutti::trace::now_ns());
      trace->counter("loss", number, 10.0 / number);
    }
    return {};
  }

  Status misbehave() {
    const int rank = world->rank();
    if (manner == "killed" && rank == 1) ::raise(SIGKILL);
    if (manner == "stuck" && rank == 1) {
      // Until the others have given up: their verdict arrives here, too.
      while (world->health().ok()) std::this_thread::sleep_for(std::chrono::milliseconds(5));
      return world->health();
    }
    if (manner == "mismatch" && rank == 2) return world->broadcast(Buffer::of(small), 0);
    tutti::CallOptions call;
    call.timeout = std::chrono::milliseconds(manner == "stuck" ? 400 : 30000);
    return world->all_reduce(Buffer::of(big), ReduceOp::max, call);
  }
};

}  // namespace

// All ranks trace at once, each into its own file.
static int run_threads() {
  auto store = tutti::make_memory_store();
  std::atomic<int> failures{0};
  std::vector<std::thread> threads;
  for (int number = 0; number < 3; ++number)
    threads.emplace_back([&, number] {
      tutti::GroupOptions options;
      options.rank = number;
      options.size = 3;
      auto world = tutti::Group::create(store, options);
      if (!world.ok()) return static_cast<void>(++failures);
      Rank rank;
      rank.world = rank.pairs = *world;
      for (int step = 1; step <= 5; ++step) failures += rank.step(step).ok() ? 0 : 1;
    });
  for (std::thread& thread : threads) thread.join();
  return failures == 0 ? 0 : 1;
}

int main(int count, char** words) {
  if (count > 1 && std::strcmp(words[1], "threads") == 0) return run_threads();
  Rank rank;
  rank.manner = count > 1 ? words[1] : "well";
  auto world = tutti::Group::from_environment();
  if (!world.ok()) return std::fprintf(stderr, "%s\n", world.status().to_string().c_str()), 1;
  rank.world = *world;
  auto pairs = rank.world->split(rank.world->rank() / 2, 0, {"pair"});
  if (!pairs.ok()) return std::fprintf(stderr, "%s\n", pairs.status().to_string().c_str()), 1;
  rank.pairs = *pairs;
  if (rank.manner == "bare") return rank.world->barrier().ok() ? 0 : 1;
  for (int number = 1; number <= 5; ++number)
    if (Status status = rank.step(number); !status.ok())
      return std::fprintf(stderr, "%s\n", status.to_string().c_str()), 1;
  if (rank.manner == "well" || rank.manner == "late") return 0;
  const Status status = rank.misbehave();
  std::fprintf(stderr, "%s\n", status.to_string().c_str());
  return 1;
}
