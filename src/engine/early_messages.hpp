// engine/early_messages.hpp - what has come for groups that this rank has not made yet: a peer may have
// made them already, and begun.
//
// Bounded, for a peer that is wrong must not fill this rank's memory: a correct one can be ahead by the
// groups that are being made just now, and sends into each what is small enough to wait there.
//
// Thread-safety  none: the holder of the poll lock.
#pragma once

#include <cstdint>
#include <string>
#include <unordered_map>
#include <vector>

#include "engine/segments.hpp"
#include "transport/link.hpp"

namespace tutti::engine {

class EarlyMessages {
 public:
  static constexpr std::size_t kMostOfPeer = 1 << 16;
  static constexpr std::size_t kMostBytesOfPeer = 64 << 20;

  struct Message {
    int peer = 0;
    transport::Header header;
    Segment segment;
    std::string control;  // payload of a control message

    transport::Payload payload() const;
  };

  explicit EarlyMessages(int ranks) : peers_(static_cast<std::size_t>(ranks)) {}

  // False: it is more than a rank that keeps to the protocol ever sends. Nothing was kept then.
  bool keep(int peer, const transport::Header& header, const transport::Payload& payload);
  // In the order in which they came.
  std::vector<Message> take(std::uint32_t channel);

 private:
  struct Peer {
    std::size_t messages = 0;
    std::size_t bytes = 0;
  };
  std::unordered_map<std::uint32_t, std::vector<Message>> by_channel_;
  std::vector<Peer> peers_;
};

}  // namespace tutti::engine
