#include "core/retransmission.hpp"

#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>

#include <algorithm>

namespace tutti {
namespace {

// TCP_RTO_MAX_MS, of Linux 6.15; headers that are older do not name it.
constexpr int kRetryAtMost = 44;
constexpr Nanoseconds kShortestRetry = std::chrono::seconds(1);  // less it does not take
constexpr Nanoseconds kLongestRetry = std::chrono::seconds(120);

}  // namespace

void retransmit_evenly(int socket, Nanoseconds dead_after) noexcept {
  if (dead_after.count() == 0) return;
  const auto longest = std::clamp<Nanoseconds>(dead_after / 8, kShortestRetry, kLongestRetry);
  const int milliseconds =
      static_cast<int>(std::chrono::duration_cast<std::chrono::milliseconds>(longest).count());
  const int on = 1;
  (void)::setsockopt(socket, IPPROTO_TCP, kRetryAtMost, &milliseconds, sizeof milliseconds);
  (void)::setsockopt(socket, IPPROTO_TCP, TCP_THIN_LINEAR_TIMEOUTS, &on, sizeof on);
}

}  // namespace tutti
