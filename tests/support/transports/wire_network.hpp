// support/transports/wire_network.hpp - production's tcp links in virtual time, over sockets with a
// relay between their ends.
//
//   TcpLink ══ socketpair ══ relay: pieces of random size, each due at its own time ══ socketpair ══ TcpLink
//
// One to three connections a pair, checksums on. Pieces go down to a byte and arrive one by one, so
// that reads end anywhere in a frame; small socket buffers make writes end anywhere, too. Every connection
// has its own latency: streams of a pair overtake each other, and so do links.
#pragma once

#include <cstdint>
#include <deque>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "core/byte_stream.hpp"
#include "support/transports/virtual_network.hpp"
#include "transport/linked_endpoint.hpp"

namespace tutti::transport {

struct WireOptions {
  int ranks = 2;
  std::uint64_t seed = 0;
  std::size_t segment_bytes = 64 * 1024;
};

class WireNetwork final : public VirtualNetwork {
 public:
  WireNetwork(const WireOptions& options, VirtualClock& clock);
  ~WireNetwork() override;

  std::unique_ptr<Endpoint> endpoint(int rank) override;
  bool move() override;
  Nanoseconds next_event() const override;
  // Its connections end, at different times, and anywhere in what was under way.
  void kill(int rank) override;
  // One connection of the two ends for `to`, anywhere in what was under way.
  void cut(int from, int to) override;
  void end() override;

 private:
  struct Piece {
    Nanoseconds due{0};
    std::string bytes;
  };
  // One direction of a connection. It is ready when its source is.
  struct Way final : EventSource {
    void on_ready(std::uint32_t events) override;

    int from = 0;
    int to = 0;
    int source = -1;  // the relay's descriptors
    int target = -1;
    Nanoseconds latency{0};
    unsigned tiny_in_ten = 0;  // pieces of a few bytes
    bool readable = true;
    bool closing = false;  // the source has closed; there may be more to read before
    std::deque<Piece> pieces;
    std::size_t under_way = 0;  // bytes
    bool ending = false;        // nothing more is taken in; the end follows what is under way
    Nanoseconds end_due{0};
    Nanoseconds ended_at = Nanoseconds::max();
    bool is_over() const { return ended_at != Nanoseconds::max(); }
  };
  struct Wire {
    Descriptor relay[2];
    Way ways[2];
  };

  void make_endpoints(const WireOptions& options);
  ByteStream connect(Wire& wire, int side, int buffer_bytes);
  std::vector<ByteStream> connect_pair(int a, int b, std::vector<ByteStream>& of_b);
  bool take_in(Way& way);
  bool hand_on(Way& way);
  bool write_first(Way& way);
  void begin_end(Way& way);
  void lose_some(Way& way);
  void finish(Way& way);
  std::uint64_t random(std::uint64_t below) { return engine_() % below; }

  VirtualClock& clock_;
  std::mt19937_64 engine_;
  bool uneven_;
  std::size_t most_under_way_;  // of one direction of a connection
  Reactor reactor_;
  std::deque<Wire> wires_;
  std::vector<bool> dead_;
  std::vector<std::unique_ptr<LinkedEndpoint>> endpoints_;
};

}  // namespace tutti::transport
