#include "core/process_hooks.hpp"

#include <pthread.h>
#include <sched.h>
#include <signal.h>

#include <array>
#include <atomic>
#include <cerrno>

namespace tutti {
namespace {

enum SlotState : std::uint32_t { kFree, kClaimed, kDump, kFork, kForked };

struct Slot {
  std::atomic<std::uint32_t> state{kFree};
  std::atomic<Hook::Function> function{nullptr};
  std::atomic<void*> context{nullptr};
};

// Fixed and lock-free, because a signal handler walks it.
std::array<Slot, Hook::kMaxHooks> g_slots;
// How many walks are under way; whoever unregisters waits until it was zero once.
std::atomic<std::uint32_t> g_walks{0};
std::atomic<std::uint32_t> g_forks{0};
std::array<std::atomic<bool>, static_cast<std::size_t>(Warning::count)> g_warned{};

void run(SlotState occasion) noexcept {
  g_walks.fetch_add(1);
  for (Slot& slot : g_slots)
    if (slot.state.load() == occasion) slot.function.load()(slot.context.load());
  g_walks.fetch_sub(1);
}

void on_signal(int) {
  const int saved = errno;
  run(kDump);
  errno = saved;
}

void on_forked_child() {
  // A walk of another thread of the parent does not go on here, so its count must not either.
  g_walks.store(0);
  g_forks.fetch_add(1);
  run(kFork);
  // Not again in this one's children: a number that was closed here may be another file by then.
  for (Slot& slot : g_slots) {
    std::uint32_t done = kFork;
    slot.state.compare_exchange_strong(done, kForked);
  }
}

// The first hook of a kind takes the signal or the fork handler; a signal that has a handler
// already stays with it.
void take_signal() {
  static const bool taken = [] {
    struct sigaction old {};
    if (sigaction(SIGUSR1, nullptr, &old) != 0 || old.sa_handler != SIG_DFL) return false;
    struct sigaction mine {};
    mine.sa_handler = on_signal;
    mine.sa_flags = SA_RESTART;
    sigemptyset(&mine.sa_mask);
    return sigaction(SIGUSR1, &mine, nullptr) == 0;
  }();
  (void)taken;
}

void take_fork() {
  static const bool taken = pthread_atfork(nullptr, nullptr, on_forked_child) == 0;
  (void)taken;
}

std::size_t claim(SlotState occasion, Hook::Function function, void* context) noexcept {
  for (std::size_t i = 0; i < g_slots.size(); ++i) {
    std::uint32_t expected = kFree;
    if (!g_slots[i].state.compare_exchange_strong(expected, kClaimed)) continue;
    g_slots[i].function.store(function);
    g_slots[i].context.store(context);
    g_slots[i].state.store(occasion);
    return i;
  }
  return g_slots.size();
}

}  // namespace

Hook Hook::on_dump(Function function, void* context) noexcept {
  take_signal();
  const std::size_t slot = claim(kDump, function, context);
  return slot < kMaxHooks ? Hook(slot) : Hook();
}

Hook Hook::on_fork(Function function, void* context) noexcept {
  take_fork();
  const std::size_t slot = claim(kFork, function, context);
  return slot < kMaxHooks ? Hook(slot) : Hook();
}

Hook& Hook::operator=(Hook&& other) noexcept {
  if (this == &other) return *this;
  reset();
  slot_ = other.slot_;
  other.slot_ = kNone;
  return *this;
}

void Hook::reset() noexcept {
  if (slot_ == kNone) return;
  g_slots[slot_].state.store(kClaimed);
  while (g_walks.load() != 0) sched_yield();
  g_slots[slot_].state.store(kFree);
  slot_ = kNone;
}

void run_dump_hooks() noexcept { run(kDump); }

bool first_warning(Warning warning) noexcept {
  return !g_warned[static_cast<std::size_t>(warning)].exchange(true);
}

std::uint32_t fork_generation() noexcept {
  take_fork();
  return g_forks.load(std::memory_order_relaxed);
}

}  // namespace tutti
