#include "core/write_within.hpp"

#include <limits.h>
#include <poll.h>
#include <sys/stat.h>
#include <sys/uio.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>

namespace tutti {
namespace {

using std::chrono::milliseconds;

// Not core/clock.hpp: this runs in signal handlers.
milliseconds monotonic_now() noexcept {
  timespec now{};
  ::clock_gettime(CLOCK_MONOTONIC, &now);
  return milliseconds(std::int64_t{now.tv_sec} * 1000 + now.tv_nsec / 1'000'000);
}

bool has_room(int descriptor, milliseconds patience) noexcept {
  pollfd watched{descriptor, POLLOUT, 0};
  // bounded: by the patience
  const int ready =
      ::poll(&watched, 1, static_cast<int>(std::max(patience, milliseconds(0)).count()));
  return ready > 0 || (ready < 0 && errno == EINTR);
}

// A file has no reader to wait for; several file systems refuse to append to one in a hurry. Terminals
// do not know the flag; they have said that there is room.
ssize_t write_now(int descriptor, std::string_view text) noexcept {
  struct stat facts {};
  if (::fstat(descriptor, &facts) == 0 && S_ISREG(facts.st_mode))
    return ::write(descriptor, text.data(), text.size());  // bounded: a regular file
  iovec piece{const_cast<char*>(text.data()), text.size()};
  const ssize_t written = ::pwritev2(descriptor, &piece, 1, -1, RWF_NOWAIT);
  if (written >= 0 || (errno != EOPNOTSUPP && errno != ENOSYS && errno != EINVAL)) return written;
  return ::write(descriptor, text.data(), text.size());  // bounded: there was room
}

}  // namespace

int write_within(int descriptor, std::string_view text, milliseconds patience) noexcept {
  const milliseconds deadline = monotonic_now() + patience;
  while (!text.empty()) {
    if (!has_room(descriptor, deadline - monotonic_now())) return EAGAIN;
    const ssize_t written = write_now(descriptor, text.substr(0, PIPE_BUF));
    if (written > 0) text.remove_prefix(static_cast<std::size_t>(written));
    if (written == 0) return ENOSPC;
    if (written > 0 || errno == EINTR) continue;
    if (errno != EAGAIN) return errno;
    if (monotonic_now() >= deadline) return EAGAIN;
  }
  return 0;
}

}  // namespace tutti
