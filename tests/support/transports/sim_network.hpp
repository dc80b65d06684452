// support/transports/sim_network.hpp - message links in virtual time: latency, bandwidth, stalls and
// deaths.
//
// All endpoints live in one thread, under one VirtualClock that the caller moves: the same seed
// gives the same run, to the byte. Links keep order, take part of a message at a time, and say "no
// room" when too much is on its way, as sockets do. A lent payload is read when it is *delivered*,
// not when it is sent: whoever reuses it early is found out.
//
// (Not to be confused with plan/simulate, which costs schedules; this runs the real engine.)
#pragma once

#include <cstdint>
#include <deque>
#include <memory>
#include <random>
#include <vector>

#include "support/transports/virtual_network.hpp"

namespace tutti::transport {

struct SimOptions {
  int ranks = 2;
  std::uint64_t seed = 0;
  Nanoseconds latency{20'000};
  Nanoseconds jitter{100'000};  // up to this much on top, per frame
  // Every way has a latency of its own instead, from a microsecond to 30 ms: what one rank sends to two
  // others may come to the second long after the first has answered.
  bool uneven = false;
  double bytes_per_second = 1e9;
  std::size_t most_in_flight = 1 << 20;  // bytes per link before it says "no room"
  Nanoseconds death_notice{1'000'000};   // from a death until a peer's link goes down
  Nanoseconds silence{500'000'000};      // from a cut until both ends take each other for dead
};

class SimNetwork final : public VirtualNetwork {
 public:
  SimNetwork(SimOptions options, VirtualClock& clock);
  ~SimNetwork() override;

  std::unique_ptr<Endpoint> endpoint(int rank) override;
  // Its peers learn of it after death_notice.
  void kill(int rank) override;
  // Nothing gets through; both ends give each other up after `silence`.
  void cut(int from, int to) override;
  Nanoseconds next_event() const override;
  bool alive(int rank) const;

 private:
  friend class SimLink;
  friend class SimEndpoint;

  // On its way from one rank to another.
  struct Frame {
    Nanoseconds due{0};
    Header header;
    std::vector<std::byte> copy;      // small payloads
    const std::byte* lent = nullptr;  // large ones, read on delivery
    std::uint64_t token = 0;
  };
  struct Pipe {  // one direction of a pair
    std::deque<Frame> frames;
    std::deque<std::uint64_t> sent;  // tokens to give back to the sender
    std::size_t in_flight = 0;
    Nanoseconds latency{0};
    Nanoseconds free_at{0};
    Nanoseconds cut_at = Nanoseconds::max();
  };

  Pipe& pipe(int from, int to);
  const Pipe& pipe(int from, int to) const;
  Nanoseconds given_up_at(int one, int other) const;
  Sent send(int from, int to, Header header, const void* payload, std::size_t bytes,
            std::uint64_t token);
  void forget(int from, int to, std::uint32_t channel);
  std::uint64_t random(std::uint64_t below);

  SimOptions options_;
  VirtualClock& clock_;
  std::mt19937_64 engine_;
  std::vector<Pipe> pipes_;
  std::vector<Nanoseconds> died_;  // max(): alive
};

}  // namespace tutti::transport
