// transport/joining.hpp - how a rank comes to its links: it connects to every lower rank, and lower
// ranks are connected to by it.
//
// For each pair there are *routes*: the transports that both are ready to use, the best first. The
// connecting side tries one after the other until a link is there; the accepting side takes what
// arrives. One thread, one loop, no blocking but poll.
//
// Strangers      come in by the same doors. They hold a bounded number of places (core/strangers.hpp), a
//                bounded number is let in per turn, and who is turned away is told at WARN. A rank that
//                was turned away for want of a place tries again until the time is up.
// Death          of a rank that is awaited is noticed: by its process where it is on this host, by its
//                closed door, and by the end of a link that was there already.
#pragma once

#include <chrono>
#include <functional>
#include <map>
#include <memory>
#include <vector>

#include "core/log.hpp"
#include "core/strangers.hpp"
#include "transport/attempt.hpp"
#include "transport/doors.hpp"
#include "transport/linked_endpoint.hpp"

namespace tutti::transport {

class Joining {
 public:
  // All outlive the Joining. `places` is how many connections may be open at the same time whose other
  // end has proved nothing.
  Joining(const Party& party, const Doors& doors, LinkedEndpoint& endpoint, std::size_t places,
          Log log, const Clock& clock = steady_clock());

  // Until every link is there, or `watch` says why there is no use in waiting. The error names the
  // ranks that are not linked, and why.
  Status run(Nanoseconds timeout, const Opening::Watch& watch);
  // The same by turns, each of which waits for at most `longest_wait`. True: every link is there. No
  // turn follows one that has failed.
  Status begin(Nanoseconds timeout, Opening::Watch watch);
  Result<bool> turn(Nanoseconds longest_wait);

 private:
  using Id = Strangers::Id;
  // One connection of a pair.
  struct Slot {
    Connection connection;
    int turned_away = 0;      // in a row
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
    Nanoseconds refused_since = Nanoseconds::max();  // nobody listens at its door
    Descriptor process;                              // readable when it has ended

    const Transport* transport() const { return route < routes.size() ? routes[route] : nullptr; }
  };

  Status check_routes() const;
  bool all_linked() const;
  Status watch_processes();
  Status look_around();
  Status gone(int peer, const std::string& why) const;
  void take_route(int peer, std::size_t route);
  Status next_route(int peer, const Status& why);
  Status start_due();
  Status start(int peer, int number);
  Nanoseconds now() const { return clock_.now(); }
  void try_again(Slot& slot) const;
  Result<std::string> address_of(int peer, Door door) const;
  Status accept_all();
  Status accept(const Descriptor& listener, Door door);
  Status let_in(Descriptor socket, Door door);
  void turn_away(Id id, const std::string& why);
  Status wait(Nanoseconds longest);
  Status step(Id id);
  Status settle(Attempt& attempt);
  Status settle_failure(Attempt& attempt);
  Status retry(Attempt& attempt);
  Status refused(int peer);
  Status adopt(Attempt& attempt);
  Status cannot(int peer, const std::string& tried) const;
  Status overdue() const;
  Status make_room_for(const Status& why);
  Course& course(int peer) { return courses_[static_cast<std::size_t>(peer)]; }
  const Course& course(int peer) const { return courses_[static_cast<std::size_t>(peer)]; }

  const Party& party_;
  const Doors& doors_;
  LinkedEndpoint& endpoint_;
  Log log_;
  const Clock& clock_;
  std::vector<Course> courses_;  // by rank
  Strangers strangers_;          // of attempts_, by their ids
  RefusalLog refusals_;
  std::map<Id, std::unique_ptr<Attempt>> attempts_;
  Id attempts_made_ = 0;
  Opening::Watch watch_;
  Nanoseconds timeout_{0};
  Nanoseconds deadline_{0};
  Nanoseconds look_at_{0};
};

}  // namespace tutti::transport
