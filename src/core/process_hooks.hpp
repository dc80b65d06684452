// core/process_hooks.hpp - what a process has only one of: SIGUSR1, the way down, and fork.
//
// Nearly all mutable globals of the library live here (docs/map.md). Owners register a function for an occasion and
// keep the Hook; destroying it unregisters, and waits for a call under way in another thread.
//
// Occasions      dump   SIGUSR1 came, or a TUTTI_CHECK failed. Runs in a signal handler: the
//                       function may only do what is async-signal-safe.
//                forked this process is a fresh child of fork(), the first since the function was
//                       registered: not called again in its children. Close descriptors, map over memory, no more.
// SIGUSR1        is taken with the first dump hook, and only if nobody else handles it.
// Thread-safety  any thread may register and unregister.
//
//   Hook hook = Hook::on_dump(&Engine::dump, this);   // noexcept, async-signal-safe
//   if (fork_guard_.crossed()) return Status(Code::unsupported, "this group is the parent's …");
#pragma once

#include <cstddef>
#include <cstdint>

namespace tutti {

class Hook {
 public:
  using Function = void (*)(void* context) noexcept;

  static Hook on_dump(Function function, void* context) noexcept;
  static Hook on_fork(Function function, void* context) noexcept;

  Hook() = default;  // hooks nothing
  Hook(Hook&& other) noexcept : slot_(other.slot_) { other.slot_ = kNone; }
  Hook& operator=(Hook&& other) noexcept;
  ~Hook() { reset(); }
  // Unregisters. Not from inside a hook.
  void reset() noexcept;
  // False when the table (kMaxHooks) was full: the hook will not run.
  bool registered() const noexcept { return slot_ != kNone; }

  static constexpr std::size_t kMaxHooks = 1024;

 private:
  static constexpr std::size_t kNone = static_cast<std::size_t>(-1);
  explicit Hook(std::size_t slot) : slot_(slot) {}
  std::size_t slot_ = kNone;
};

// Runs the dump hooks; async-signal-safe.
void run_dump_hooks() noexcept;

// What a process is told once, however many ranks it has.
enum class Warning : std::uint8_t { unknown_variables, open_store, count };
// True the first time, and never again.
bool first_warning(Warning warning) noexcept;

// Counts the forks that lie between this process and the one that loaded the library.
std::uint32_t fork_generation() noexcept;

// Remembers in which process it was made. A member of whatever must not be used across fork().
class ForkGuard {
 public:
  ForkGuard() noexcept : born_(fork_generation()) {}
  // True in a child of the process that made it. Costs one load.
  bool crossed() const noexcept { return born_ != fork_generation(); }

 private:
  std::uint32_t born_;
};

}  // namespace tutti
