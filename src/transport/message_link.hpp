// transport/message_link.hpp - a link that moves bytes through descriptors, as the endpoint keeps it.
//
// The endpoint polls such links and sleeps over their descriptors. It reads few sockets whether or
// not they have something; of many it asks the reactor first which are ready.
#pragma once

#include "core/clock.hpp"
#include "transport/endpoint.hpp"
#include "transport/link.hpp"
#include "transport/reactor.hpp"

namespace tutti::transport {

class MessageLink : public Link {
 public:
  // How many descriptors a poll would read.
  virtual std::size_t sockets() const { return 1; }
  // Enters them into the reactor.
  virtual Status watch(Reactor& reactor) = 0;
  // Whether poll would find something to do, as far as the reactor has told.
  virtual bool ready() const = 0;
  // The sockets are to be tried whether or not the reactor said so.
  virtual void suppose_readable() = 0;
  // Whether something waits for room in a socket: the reactor tells when there is.
  virtual bool wants_room() const = 0;
  // Writes what the sockets take. True when nothing is left.
  virtual bool flush() = 0;
  // Whether all that was written has come to the peer's host, or never will.
  virtual bool has_arrived() { return true; }
  // How long the endpoint may sleep before it looks whether something has come that no descriptor tells of.
  virtual Nanoseconds longest_nap(bool /*idle*/) { return Nanoseconds::max(); }
  // Whether the link moves symmetric memory of this rank without copies; then it hears of it. `file` holds the
  // memory, and is open during the call.
  virtual bool wants_regions() const { return false; }
  virtual void add_region(std::uint64_t /*id*/, const MemoryRegion&, int /*file*/) {}
  virtual void drop_region(std::uint64_t /*id*/) {}
  // Closes the sockets, in a child of fork().
  virtual void abandon() noexcept = 0;
};

}  // namespace tutti::transport
