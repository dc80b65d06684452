// transport/joining.hpp - how a rank comes to its links: it connects to every lower rank, and lower
// ranks are connected to by it.
//
// The connecting side tries the Unix socket where both are on one host, and TCP if that did not
// lead to shared memory; the accepting side takes what arrives. One thread, one loop, no blocking
// but poll.
#pragma once

#include <chrono>
#include <memory>
#include <vector>

#include "transport/attempt.hpp"
#include "transport/linked_endpoint.hpp"
#include "transport/tcp/listeners.hpp"

namespace tutti::transport {

class Joining {
 public:
  // All outlive the Joining. `local`: the Unix socket's listener; may be empty.
  Joining(const Party& party, const Descriptor& local, const TcpListeners& tcp,
          LinkedEndpoint& endpoint, std::vector<int> lanes, const Config& config, Log log);

  // Until every link is there. The error names the ranks that are not, and why.
  Status run(Nanoseconds timeout);

 private:
  // One TCP connection of a pair.
  struct Stream {
    Descriptor socket;
    int turned_away = 0;      // hung up on in the middle
    Nanoseconds retry_at{0};  // Nanoseconds::max(): an attempt is under way
  };
  // What is known of the way to one peer.
  struct Course {
    bool linked = false;
    bool tried_local = false;
    Nanoseconds retry_at{0};  // of the Unix socket, as above; then the streams have their own
    std::vector<Stream> streams;
    Status last_failure;
  };
  using Attempts = std::vector<std::unique_ptr<Attempt>>;

  Status check_ways() const;
  bool all_linked() const;
  Status start_due();
  void start(int peer);
  Status start_streams(int peer);
  Status start_tcp(int peer, int stream);
  void accept(const Descriptor& listener, bool local);
  void make_room();
  void wait() const;
  Status step_all();
  Status settle(Attempt& attempt);
  Status settle_failure(Attempt& attempt);
  Status adopt(Attempt& attempt);
  Status adopt_tcp(Attempt& attempt);
  Status cannot(int peer, const std::string& tried) const;
  Status overdue(Nanoseconds timeout) const;
  int lane_of(int rank) const;
  Course& course(int peer) { return courses_[static_cast<std::size_t>(peer)]; }
  const Course& course(int peer) const { return courses_[static_cast<std::size_t>(peer)]; }

  const Party& party_;
  const Descriptor& local_;
  const TcpListeners& tcp_;
  LinkedEndpoint& endpoint_;
  std::vector<int> lanes_;  // ranks beside this one, ascending; the lane is the position
  const Config& config_;
  Log log_;
  std::vector<Course> courses_;  // by rank
  Attempts attempts_;
  std::size_t expected_ = 0;  // connections that may be made to us
  Nanoseconds deadline_{0};
};

}  // namespace tutti::transport
