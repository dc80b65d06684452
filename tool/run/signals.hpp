// tool/run/signals.hpp - signals to the launcher, and how ranks that must end are made to.
#pragma once

#include <signal.h>

#include <optional>

#include "core/clock.hpp"
#include "core/sockets.hpp"
#include "tutti/status.hpp"

namespace tutti::tool {

// SIGINT, SIGTERM, SIGHUP and SIGQUIT as things to read instead of interruptions. Created before
// any thread is, so that all threads have them blocked.
class Signals {
 public:
  static Result<Signals> capture();
  Signals(Signals&&) noexcept = default;
  // As before: the next job's ranks must not inherit blocked signals.
  ~Signals();
  int descriptor() const { return descriptor_.get(); }
  // The next one that arrived; 0 when there is none.
  int take();
  // The mask that was there before: the ranks get it back.
  const sigset_t& former_mask() const { return former_mask_; }

 private:
  Signals() = default;
  Descriptor descriptor_;
  sigset_t former_mask_{};
};

// When to send what to the ranks that still run. Knows no processes: ask it, then do it.
//
//   a rank failed      → grace → SIGTERM → grace → SIGKILL     (they mostly end by themselves)
//   a signal came      → that signal now
//   a second one came  → that signal now → grace → SIGKILL
//   a third one came   → SIGKILL now
//   the leash is cut   → SIGTERM now → grace → SIGKILL         (leash.hpp)
class Escalation {
 public:
  explicit Escalation(Nanoseconds grace) : grace_(grace) {}

  void rank_failed(Nanoseconds now);
  // What to pass on at once.
  int signal_arrived(int signal, Nanoseconds now);
  int leash_cut(Nanoseconds now);

  // The signal whose time has come, once; 0 when there is none.
  int due(Nanoseconds now);
  // When to ask again.
  std::optional<Nanoseconds> next() const;
  int signals() const { return signals_; }

 private:
  void kill_at(Nanoseconds when);

  Nanoseconds grace_;
  int signals_ = 0;
  bool failed_ = false;
  std::optional<Nanoseconds> term_at_;
  std::optional<Nanoseconds> kill_at_;
};

}  // namespace tutti::tool
