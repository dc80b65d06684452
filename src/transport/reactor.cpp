#include "transport/reactor.hpp"

#include <sys/epoll.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <limits>

namespace tutti::transport {
namespace {

// Rounded up: a sleep must not turn into a busy loop.
int milliseconds(Nanoseconds timeout) {
  const auto ms = std::chrono::ceil<std::chrono::milliseconds>(timeout).count();
  return static_cast<int>(std::clamp<long long>(ms, 0, std::numeric_limits<int>::max()));
}

// epoll_pwait2 knows nanoseconds, but not every kernel knows it.
int wait_for(int epoll, epoll_event* events, int most, Nanoseconds timeout) {
  if (timeout > Nanoseconds(0) && timeout < std::chrono::milliseconds(20)) {
    const timespec span{0, static_cast<long>(timeout.count())};
    const int ready = ::epoll_pwait2(epoll, events, most, &span, nullptr);
    if (ready >= 0 || errno != ENOSYS) return ready;
  }
  return ::epoll_wait(epoll, events, most, milliseconds(timeout));
}

}  // namespace

Result<Reactor> Reactor::create() {
  Descriptor epoll(::epoll_create1(EPOLL_CLOEXEC));
  if (!epoll) return errno_status("cannot make an epoll set");
  return Reactor(std::move(epoll));
}

Status Reactor::add(int descriptor, Source& source) {
  epoll_event event{};
  event.events = EPOLLIN | EPOLLOUT | EPOLLRDHUP | EPOLLET;
  event.data.ptr = &source;
  if (::epoll_ctl(epoll_.get(), EPOLL_CTL_ADD, descriptor, &event) != 0)
    return errno_status("cannot watch a descriptor");
  return {};
}

bool Reactor::wait(Nanoseconds timeout) {
  std::array<epoll_event, 64> events;
  const int ready = wait_for(epoll_.get(), events.data(), static_cast<int>(events.size()), timeout);
  for (int i = 0; i < ready; ++i)
    static_cast<Source*>(events[static_cast<std::size_t>(i)].data.ptr)
        ->on_ready(events[static_cast<std::size_t>(i)].events);
  return ready > 0;
}

}  // namespace tutti::transport
