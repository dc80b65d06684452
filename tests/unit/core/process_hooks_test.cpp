#include "core/process_hooks.hpp"

#include <gtest/gtest.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <thread>
#include <vector>

#include "core/check.hpp"

namespace tutti {
namespace {

void count(void* context) noexcept { ++*static_cast<std::atomic<int>*>(context); }
void say_last_words(void*) noexcept {
  [[maybe_unused]] const ssize_t n = ::write(STDERR_FILENO, "last words\n", 11);
}

TEST(process_hooks, sigusr1_runs_the_dump_hooks_that_are_alive) {
  std::atomic<int> a{0}, b{0};
  Hook first = Hook::on_dump(count, &a);
  {
    Hook second = Hook::on_dump(count, &b);
    ASSERT_EQ(::raise(SIGUSR1), 0);
  }
  ASSERT_EQ(::raise(SIGUSR1), 0);
  EXPECT_EQ(a, 2);
  EXPECT_EQ(b, 1);
}

TEST(process_hooks, a_hook_moves_with_its_owner) {
  std::atomic<int> calls{0};
  Hook outer;
  EXPECT_FALSE(outer.registered());
  {
    Hook inner = Hook::on_dump(count, &calls);
    outer = std::move(inner);
  }
  run_dump_hooks();
  EXPECT_EQ(calls, 1);
  outer.reset();
  run_dump_hooks();
  EXPECT_EQ(calls, 1);
}

TEST(process_hooks, a_full_table_is_no_error_and_places_come_back) {
  std::atomic<int> calls{0};
  std::vector<Hook> hooks;
  for (std::size_t i = 0; i < Hook::kMaxHooks + 1; ++i)
    hooks.push_back(Hook::on_dump(count, &calls));
  EXPECT_FALSE(hooks.back().registered());
  run_dump_hooks();
  EXPECT_EQ(calls, static_cast<int>(Hook::kMaxHooks));
  hooks.clear();
  EXPECT_TRUE(Hook::on_dump(count, &calls).registered());
}

// What a hook looks at may be destroyed as soon as the hook is.
TEST(process_hooks, unregistering_waits_for_a_call_under_way) {
  std::atomic<bool> stop{false};
  std::thread caller([&] {
    while (!stop) run_dump_hooks();
  });
  for (int i = 0; i < 300; ++i) {
    auto context = std::make_unique<std::atomic<int>>(0);
    Hook hook = Hook::on_dump(count, context.get());
    hook.reset();
    context.reset();
  }
  stop = true;
  caller.join();
}

TEST(process_hooks, a_child_of_fork_knows_that_it_is_one) {
  ForkGuard guard;
  std::atomic<int> calls{0};
  Hook hook = Hook::on_fork(count, &calls);
  EXPECT_FALSE(guard.crossed());
  const pid_t child = ::fork();
  ASSERT_GE(child, 0);
  if (child == 0) {
    const ForkGuard born_here;
    ::_exit(guard.crossed() && !born_here.crossed() && calls == 1 ? 0 : 1);
  }
  int status = 0;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  EXPECT_EQ(status, 0);
  EXPECT_FALSE(guard.crossed());
  EXPECT_EQ(calls, 0);
}

// A child that closed a descriptor may have got its number for a file of its own.
TEST(process_hooks, a_fork_hook_is_not_called_again_in_grandchildren) {
  std::atomic<int> calls{0}, later{0};
  Hook hook = Hook::on_fork(count, &calls);
  const pid_t child = ::fork();
  ASSERT_GE(child, 0);
  if (child == 0) {
    Hook of_child = Hook::on_fork(count, &later);
    const pid_t grandchild = ::fork();
    if (grandchild == 0) ::_exit(calls == 1 && later == 1 ? 0 : 1);
    int status = 1;
    ::waitpid(grandchild, &status, 0);
    ::_exit(status == 0 ? 0 : 1);
  }
  int status = 0;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  EXPECT_EQ(status, 0);
}

TEST(process_hooks_death, a_failed_check_says_what_broke_dumps_and_aborts) {
  // Started anew, not forked: other threads may be about.
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  EXPECT_EXIT(
      {
        Hook hook = Hook::on_dump(say_last_words, nullptr);
        TUTTI_CHECK(1 + 1 == 3);
      },
      testing::KilledBySignal(SIGABRT), "1 \\+ 1 == 3 does not hold.*\n*last words");
}

}  // namespace
}  // namespace tutti
