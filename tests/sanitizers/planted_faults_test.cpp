// Faults on purpose, in every kind of rank that the suites know. These tests are meant to end red
// wherever a sanitizer looks; planted_faults.py runs them one by one and says whether they did.
#include <signal.h>
#include <unistd.h>

#include <atomic>
#include <climits>
#include <thread>

#include "support/worlds.hpp"

namespace tutti::test {
namespace {

using Fault = void (*)();

// Volatile all over: what the compiler understands it leaves out, or warns of.
void none() {}

void overflow() {
  const auto values = std::make_unique<volatile int[]>(10);
  volatile std::size_t end = 10;
  values[end] = 1;
}

// Out of line, and many: an address that is still in a register or on the stack is no leak.
[[gnu::noinline]] void lose_one() {
  volatile char* volatile lost = new volatile char[100];
  lost[0] = 1;
  lost = nullptr;
}
void leak() {
  for (int i = 0; i < 10; ++i) lose_one();
}

void undefined() {
  volatile int large = INT_MAX;
  large = large + 1;
}

// Both threads come before either writes; a relaxed counter orders nothing.
std::atomic<int> came{0};
volatile int raced_for = 0;

void race_of_one() {
  came.fetch_add(1, std::memory_order_relaxed);
  while (came.load(std::memory_order_relaxed) < 2) std::this_thread::yield();
  for (int i = 0; i < 1000; ++i) raced_for = raced_for + 1;
}

void race() {
  std::thread other(race_of_one);
  race_of_one();
  other.join();
}

struct Planted {
  const char* name;
  Fault fault;
};
constexpr Planted kFaults[] = {{"none", none},
                               {"overflow", overflow},
                               {"leak", leak},
                               {"undefined", undefined},
                               {"race", race}};

class PlantedFault : public testing::TestWithParam<Planted> {
 protected:
  // Rank 1 of two has the fault, between two collectives.
  static void plant_in(World world) {
    run(world, [fault = GetParam().fault, &world](Context& here) {
      EXPECT_TRUE(here.group->barrier().ok());
      meet(here);
      if (here.rank == 1) fault();
      if (!world.doomed.empty() && here.rank == 1) kill(getpid(), SIGKILL);
      if (world.doomed.empty()) {
        EXPECT_TRUE(here.group->barrier().ok());
      }
    });
  }
};

TEST_P(PlantedFault, in_a_forked_rank) { plant_in({.kind = WorldKind::shm, .size = 2}); }
TEST_P(PlantedFault, in_a_thread_rank) { plant_in({.kind = WorldKind::threads, .size = 2}); }
TEST_P(PlantedFault, in_a_doomed_rank) {
  plant_in({.kind = WorldKind::tcp, .size = 2, .doomed = {1}});
}
// For processes that are ranks by themselves, under `tutti run`.
TEST_P(PlantedFault, in_this_process) { GetParam().fault(); }

INSTANTIATE_TEST_SUITE_P(Planted, PlantedFault, testing::ValuesIn(kFaults),
                         [](const auto& info) { return std::string(info.param.name); });

// The race of two ranks that are threads of one process: each has one half of it.
TEST(PlantedRace, between_thread_ranks) {
  run({.kind = WorldKind::threads, .size = 2}, [](Context&) { race_of_one(); });
}

}  // namespace
}  // namespace tutti::test
