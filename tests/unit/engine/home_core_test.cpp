// Whose core is whose, without tying anybody to it.
#include "engine/home_core.hpp"

#include <gtest/gtest.h>

#include <thread>

namespace tutti::engine {
namespace {

cpu_set_t affinity() {
  cpu_set_t set;
  CPU_ZERO(&set);
  EXPECT_EQ(pthread_getaffinity_np(pthread_self(), sizeof set, &set), 0);
  return set;
}

template <class Body>
void for_each_allowed_core(Body body) {
  const cpu_set_t allowed = affinity();
  for (int core = 0; core < CPU_SETSIZE; ++core)
    if (CPU_ISSET(core, &allowed)) body(core);
}

TEST(HomeCore, a_thread_goes_to_its_core_and_may_still_run_on_all) {
  const cpu_set_t before = affinity();
  for_each_allowed_core([](int core) {
    // The system may move it on in the next moment, hardly a hundred times in a row.
    bool was_there = false;
    for (int tries = 0; tries < 100 && !was_there; ++tries) {
      HomeCore home;
      home.settle(core);
      was_there = ::sched_getcpu() == core;
    }
    EXPECT_TRUE(was_there) << core;
  });
  const cpu_set_t after = affinity();
  EXPECT_TRUE(CPU_EQUAL(&before, &after));
}

TEST(HomeCore, whoever_waits_comes_back) {
  const cpu_set_t before = affinity();
  for_each_allowed_core([](int core) {
    for_each_allowed_core([core](int other) {
      bool came_back = other == core;
      for (int tries = 0; tries < 100 && !came_back; ++tries) {
        HomeCore home;
        home.settle(core);
        move_to_core(other);
        for (int turn = 0; turn < 100 && !came_back; ++turn) {
          home.yield();
          came_back = ::sched_getcpu() == core;
        }
      }
      EXPECT_TRUE(came_back) << core << " from " << other;
    });
  });
  const cpu_set_t after = affinity();
  EXPECT_TRUE(CPU_EQUAL(&before, &after));
}

TEST(HomeCore, other_threads_and_cores_that_are_not_there_are_left_alone) {
  const cpu_set_t before = affinity();
  HomeCore none;
  none.settle(-1);
  none.yield();
  move_to_core(CPU_SETSIZE);
  move_to_core(-1);
  HomeCore home;
  home.settle(::sched_getcpu());
  std::thread other([&] {
    for (int turn = 0; turn < 200; ++turn) home.yield();
  });
  for (int turn = 0; turn < 200; ++turn) home.yield();
  other.join();
  const cpu_set_t after = affinity();
  EXPECT_TRUE(CPU_EQUAL(&before, &after));
}

}  // namespace
}  // namespace tutti::engine
