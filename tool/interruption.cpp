#include "tool/interruption.hpp"

#include <signal.h>

namespace tutti::tool {
namespace {

constexpr int kInterruptions[] = {SIGINT, SIGTERM, SIGHUP};
volatile sig_atomic_t first_signal = 0;

void note(int signal) {
  if (first_signal == 0) first_signal = signal;
}

}  // namespace

void catch_interruptions() {
  struct sigaction action {};
  action.sa_handler = note;  // without SA_RESTART: whoever waits wakes up and looks
  for (const int signal : kInterruptions) {
    struct sigaction former {};
    // What nohup has made deaf stays so.
    if (::sigaction(signal, nullptr, &former) == 0 && former.sa_handler == SIG_IGN) continue;
    ::sigaction(signal, &action, nullptr);
  }
}

int interruption() { return first_signal; }

void note_interruption(int exit_code) {
  for (const int signal : kInterruptions)
    if (exit_code == 128 + signal) note(signal);
}

}  // namespace tutti::tool
