// transport/joining.hpp - how a rank comes to its links: while ranks join it connects to lower ranks, and
// higher ones connect to it.
//
// For each pair there are *routes*: the transports that both are ready to use, the best first. The
// connecting side tries one after the other until a link is there; the accepting side takes what
// arrives. One thread, one loop, no blocking but poll.
//
// Strangers      come in by the same doors. They hold a bounded number of places (core/strangers.hpp), a
//                bounded number is let in per turn, and who is turned away is told at WARN. A rank that
//                was turned away for want of a place tries again until the time is up.
// Lazy           (Party::lazy) only a few links are made while ranks join; then the doors stay open, and
//                whoever first uses a link connects. Two that do so at once: the higher rank's connection
//                counts. It accepts all, the lower one's are hung up on (admits), and dropped by itself.
// Death          of a rank that is awaited is noticed: by its process where it is on this host, by its
//                closed door, and by the end of a link that was there already.
#pragma once

#include <atomic>
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

class Joining final : public Attempt::Gate, public EventSource {
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

  // Afterwards, for links that are made at their first use (late_joining.cpp), all by whoever polls:

  // Doors and connections are watched by the reactor from now on.
  Status stay(Reactor& reactor);
  // A link to this peer is needed; quietly: it is no loss if there is none.
  void want(int peer, bool quietly = false);
  // Others say that a peer without a link is gone, because of `why`. If it does not answer in a moment, it is.
  void doubt(int peer, const Status& why);
  struct Loss {
    int peer = 0;
    Status why;
    bool quiet = false;
  };
  // Goes on with what is ready or due, without blocking. To whom there will be no link.
  std::vector<Loss> attend();
  void on_ready(std::uint32_t) override { ready_ = true; }
  bool is_ready() const { return ready_; }
  // When there is something to do though nothing is ready; max(): never.
  Nanoseconds due() const;
  // Closes the doors, in a child of fork().
  void abandon() noexcept;

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
    // Of those that are made late:
    bool used = false;       // this rank wants it, and connects, whichever is higher
    bool quiet = false;      // …but can do without
    bool they_come = false;  // the peer connects: this rank does not
    bool lost = false;       // there will be none
    Status doubt;            // why it may be gone,
    Nanoseconds doubted_until = Nanoseconds::max();
    Nanoseconds unanswered_since = Nanoseconds::max();  // not even its host

    const Transport* transport() const { return route < routes.size() ? routes[route] : nullptr; }
  };

  Status check_routes() const;
  bool all_linked() const;
  Status watch_processes();
  Status look_around();
  Status gone(int peer, const std::string& why) const;
  bool connects_to(int peer, const Course& to) const;
  bool is_dialling(const Course& to) const;
  bool admits(int peer) override;
  void drop_attempts(int peer);
  void give_up(int peer, const Status& why, std::vector<Loss>& losses);
  void blame(const Status& status, int peer, std::vector<Loss>& losses);
  void look_at_doubts(std::vector<Loss>& losses);
  Status watch(const Attempt& attempt);
  void take_route(int peer, std::size_t route);
  Status next_route(int peer, const Status& why);
  Status start_due();
  Status start_due(int peer, Course& to);
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
  Course& course(int peer);

  const Party& party_;
  const Doors& doors_;
  LinkedEndpoint& endpoint_;
  Log log_;
  const Clock& clock_;
  std::map<int, Course> courses_;  // of those that are wanted, or have come
  Reactor* reactor_ = nullptr;     // null: while ranks join
  std::atomic<bool> ready_{true};
  Strangers strangers_;  // of attempts_, by their ids
  RefusalLog refusals_;
  std::map<Id, std::unique_ptr<Attempt>> attempts_;
  Id attempts_made_ = 0;
  Opening::Watch watch_;
  Nanoseconds timeout_{0};
  Nanoseconds deadline_{0};
  Nanoseconds look_at_{0};
};

}  // namespace tutti::transport
