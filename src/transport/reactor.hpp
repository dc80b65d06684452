// transport/reactor.hpp - the sockets and processes that a rank watches: epoll, edge-triggered.
//
// Its own descriptor is readable while there is news, so that one thread can sleep on it while
// another looks.
#pragma once

#include <cstdint>

#include "core/sockets.hpp"

namespace tutti::transport {

// Something with a descriptor. `on_ready` only notes the EPOLL… events; poll acts on them.
class EventSource {
 public:
  virtual ~EventSource() = default;
  virtual void on_ready(std::uint32_t events) = 0;
};

class Reactor {
 public:
  static Result<Reactor> create();

  // Watches for reading and writing, by edges: a source reads until there is nothing left.
  Status add(int descriptor, EventSource& source);
  // Tells the sources what is ready right now. Never blocks.
  void look();
  int descriptor() const { return epoll_.get(); }
  // Closes it, in a child of fork(): an epoll set is shared with the parent.
  void abandon() noexcept { epoll_.reset(); }

 private:
  explicit Reactor(Descriptor epoll) : epoll_(std::move(epoll)) {}
  Descriptor epoll_;
};

}  // namespace tutti::transport
