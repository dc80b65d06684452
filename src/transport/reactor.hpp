// transport/reactor.hpp - the descriptors on which a rank can sleep: epoll, edge-triggered.
//
// Readiness is only noted here; the endpoint's poll acts on it. So sleep needs no sink, and nothing is
// done twice.
#pragma once

#include <cstdint>
#include <optional>

#include "core/clock.hpp"
#include "core/sockets.hpp"

namespace tutti::transport {

// Something with a descriptor. `on_ready` notes the EPOLL… events and does nothing else.
class Source {
 public:
  virtual ~Source() = default;
  virtual void on_ready(std::uint32_t events) = 0;
};

class Reactor {
 public:
  static Result<Reactor> create();

  // Watches for reading and writing, by edges: a source reads until there is nothing left.
  Status add(int descriptor, Source& source);
  // Waits until something is ready and tells the sources; 0 looks only. True if anything was ready.
  bool wait(Nanoseconds timeout);
  // Closes it, in a child of fork(): an epoll set is shared with the parent.
  void abandon() noexcept { epoll_.reset(); }

 private:
  explicit Reactor(Descriptor epoll) : epoll_(std::move(epoll)) {}
  Descriptor epoll_;
};

}  // namespace tutti::transport
