#include "stop_request.hpp"

#include <time.h>
#include <unistd.h>

#include <atomic>
#include <cstdint>

namespace pretrain {

namespace {

// Nanoseconds of the steady clock at the first signal; 0: there was none. A handler can reach
// nothing but globals.
std::atomic<std::int64_t> asked_at{0};
static_assert(std::atomic<std::int64_t>::is_always_lock_free);

std::int64_t now() {
  timespec time{};
  ::clock_gettime(CLOCK_MONOTONIC, &time);
  return std::int64_t{time.tv_sec} * 1'000'000'000 + time.tv_nsec;
}

void on_signal(int signal) {
  std::int64_t first = 0;
  const std::int64_t moment = now();
  if (asked_at.compare_exchange_strong(first, moment)) return;
  if (moment - first < std::chrono::nanoseconds(StopRequest::kSameWish).count()) return;
  ::_exit(128 + signal);
}

}  // namespace

StopRequest::StopRequest() {
  asked_at = 0;
  struct sigaction action = {};
  action.sa_handler = on_signal;
  action.sa_flags = SA_RESTART;
  ::sigemptyset(&action.sa_mask);
  ::sigaction(SIGINT, &action, &former_int_);
  ::sigaction(SIGTERM, &action, &former_term_);
}

StopRequest::~StopRequest() {
  ::sigaction(SIGINT, &former_int_, nullptr);
  ::sigaction(SIGTERM, &former_term_, nullptr);
}

bool StopRequest::asked() const { return asked_at != 0; }

}  // namespace pretrain
