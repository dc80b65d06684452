// transport/joining.hpp - how a rank comes to its links: it connects to every lower rank, and lower
// ranks are connected to by it.
//
// For each pair there are *routes*: the transports that both are ready to use, the best first. The
// connecting side tries one after the other until a link is there; the accepting side takes what
// arrives. One thread, one loop, no blocking but poll.
#pragma once

#include <chrono>
#include <functional>
#include <memory>
#include <vector>

#include "core/log.hpp"
#include "transport/attempt.hpp"
#include "transport/doors.hpp"
#include "transport/linked_endpoint.hpp"

namespace tutti::transport {

class Joining {
 public:
  // All outlive the Joining.
  Joining(const Party& party, const Doors& doors, LinkedEndpoint& endpoint, Log log);

  // Until every link is there, or `watch` says why there is no use in waiting. The error names the
  // ranks that are not linked, and why.
  Status run(Nanoseconds timeout, const Opening::Watch& watch);

 private:
  // One connection of a pair.
  struct Slot {
    Connection connection;
    int turned_away = 0;      // hung up on in the middle
    Nanoseconds retry_at{0};  // Nanoseconds::max(): an attempt is under way
    bool filled() const { return static_cast<bool>(connection.socket); }
  };
  // What is known of the link to one peer.
  struct Course {
    bool linked = false;
    std::vector<const Transport*> routes;
    std::size_t route = 0;    // the one that is tried
    std::vector<Slot> slots;  // its connections
    Status last_failure;

    const Transport* transport() const { return route < routes.size() ? routes[route] : nullptr; }
  };
  using Attempts = std::vector<std::unique_ptr<Attempt>>;

  Status check_routes() const;
  bool all_linked() const;
  void take_route(int peer, std::size_t route);
  Status next_route(int peer, const Status& why);
  Status start_due();
  Status start(int peer, int number);
  Result<std::string> address_of(int peer, Door door) const;
  Status accept_all();
  Status accept(const Descriptor& listener, Door door);
  void make_room();
  void wait() const;
  Status step_all();
  Status settle(Attempt& attempt);
  Status settle_failure(Attempt& attempt);
  Status retry(Attempt& attempt);
  Status adopt(Attempt& attempt);
  Status cannot(int peer, const std::string& tried) const;
  Status overdue(Nanoseconds timeout) const;
  Status out_of_descriptors(const Status& why) const;
  Course& course(int peer) { return courses_[static_cast<std::size_t>(peer)]; }
  const Course& course(int peer) const { return courses_[static_cast<std::size_t>(peer)]; }

  const Party& party_;
  const Doors& doors_;
  LinkedEndpoint& endpoint_;
  Log log_;
  std::vector<Course> courses_;  // by rank
  Attempts attempts_;
  std::size_t expected_ = 0;  // connections that may be made to us
  Nanoseconds deadline_{0};
};

}  // namespace tutti::transport
