#include "tool/run/signals.hpp"

#include <sys/signalfd.h>
#include <unistd.h>

#include <algorithm>

#include "tool/interruption.hpp"

namespace tutti::tool {

Result<Signals> Signals::capture() {
  Signals signals;
  sigset_t set;
  sigemptyset(&set);
  for (const int signal : {SIGINT, SIGTERM, SIGHUP, SIGQUIT}) sigaddset(&set, signal);
  if (::sigprocmask(SIG_BLOCK, &set, &signals.former_mask_) != 0)
    return errno_status("cannot block signals");
  signals.descriptor_.reset(::signalfd(-1, &set, SFD_CLOEXEC | SFD_NONBLOCK));
  if (!signals.descriptor_) return errno_status("cannot make a signalfd");
  // One that came just before, and was only noted, is not lost.
  if (interruption() != 0) ::raise(interruption());
  // A reader that went away is an error of write, and a background job that reads the terminal gets
  // an error of read; neither may stop the launcher.
  ::signal(SIGPIPE, SIG_IGN);
  ::signal(SIGTTIN, SIG_IGN);
  return signals;
}

Signals::~Signals() {
  if (descriptor_) ::sigprocmask(SIG_SETMASK, &former_mask_, nullptr);
}

int Signals::take() {
  signalfd_siginfo info{};
  // bounded: a signalfd that does not block.
  if (::read(descriptor_.get(), &info, sizeof info) != sizeof info) return 0;
  return static_cast<int>(info.ssi_signo);
}

void Escalation::kill_at(Nanoseconds when) {
  kill_at_ = kill_at_ ? std::min(*kill_at_, when) : when;
}

void Escalation::rank_failed(Nanoseconds now) {
  if (failed_) return;
  failed_ = true;
  term_at_ = deadline_after(now, grace_);
  kill_at(deadline_after(*term_at_, grace_));
}

int Escalation::signal_arrived(int signal, Nanoseconds now) {
  ++signals_;
  if (signals_ == 2) kill_at(deadline_after(now, grace_));
  return signals_ > 2 ? SIGKILL : signal;
}

int Escalation::leash_cut(Nanoseconds now) {
  kill_at(deadline_after(now, grace_));
  return SIGTERM;
}

int Escalation::due(Nanoseconds now) {
  if (kill_at_ && now >= *kill_at_) {
    // Again and again: a group may grow while it is being killed.
    kill_at_ = deadline_after(now, std::chrono::milliseconds(200));
    term_at_.reset();
    return SIGKILL;
  }
  if (term_at_ && now >= *term_at_) {
    term_at_.reset();
    return SIGTERM;
  }
  return 0;
}

std::optional<Nanoseconds> Escalation::next() const {
  if (term_at_ && kill_at_) return std::min(*term_at_, *kill_at_);
  return term_at_ ? term_at_ : kill_at_;
}

}  // namespace tutti::tool
