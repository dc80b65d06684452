#include "transport/reactor.hpp"

#include <sys/epoll.h>

#include <array>

namespace tutti::transport {

Result<Reactor> Reactor::create() {
  Descriptor epoll(::epoll_create1(EPOLL_CLOEXEC));
  if (!epoll) return errno_status("cannot make an epoll set");
  return Reactor(std::move(epoll));
}

Status Reactor::add(int descriptor, EventSource& source) {
  epoll_event event{};
  event.events = EPOLLIN | EPOLLOUT | EPOLLRDHUP | EPOLLET;
  event.data.ptr = &source;
  if (::epoll_ctl(epoll_.get(), EPOLL_CTL_ADD, descriptor, &event) == 0) return {};
  // A connection that has become a link has another owner.
  if (errno == EEXIST && ::epoll_ctl(epoll_.get(), EPOLL_CTL_MOD, descriptor, &event) == 0)
    return {};
  return errno_status("cannot watch a descriptor");
}

void Reactor::look() {
  std::array<epoll_event, 64> events;
  const int ready = ::epoll_wait(epoll_.get(), events.data(), static_cast<int>(events.size()), 0);
  for (int i = 0; i < ready; ++i) {
    const epoll_event& event = events[static_cast<std::size_t>(i)];
    static_cast<EventSource*>(event.data.ptr)->on_ready(event.events);
  }
}

}  // namespace tutti::transport
