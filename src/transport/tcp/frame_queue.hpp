// transport/tcp/frame_queue.hpp - frames on their way out of one socket: copied ones, and lent ones
// that point into the sender's memory.
//
// With several connections to a peer a frame may be cut in two: its header leaves on the first one,
// its payload on another.
//
// Frames of more urgent channels go ahead of others, and of channels that are as urgent small frames go
// ahead of large ones: what a group says in a few bytes does not wait for another group's megabytes.
// Within a channel the order is that of the pushes.
//
//   [large A, half out] [small B] [large A] [large A] [small A]     <- small B was pushed last
//
// Thread-safety  none of its own; TcpLink's send lock covers it.
#pragma once

#include <sys/types.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <string>
#include <vector>

#include "core/byte_stream.hpp"
#include "transport/tcp/wire_header.hpp"
#include "tutti/types.hpp"

namespace tutti::transport {

// A lent payload that the kernel has taken.
struct Completion {
  std::uint32_t channel = 0;
  std::uint64_t token = 0;
};

class FrameQueue {
 public:
  enum class Written : std::uint8_t { all, some, failed };  // failed: errno says why

  bool empty() const { return frames_.empty(); }
  std::size_t bytes() const { return bytes_[0] + bytes_[1] + bytes_[2]; }
  // Of frames that do not give way to those of `urgency`.
  std::size_t bytes_before(Urgency urgency) const;

  // Writes one frame directly, or one of its halves (the other null); gives how many bytes went, or
  // -1 with errno.
  static ssize_t write_one(ByteStreamRef stream, const WireHeader* header, const void* payload,
                           std::size_t bytes);
  // Queues a frame of which `written` bytes are out already.
  void push_copy(const WireHeader& header, const void* payload, std::size_t written,
                 Urgency urgency = Urgency::normal);
  void push_lent(const WireHeader& header, const void* payload, std::size_t written,
                 std::uint64_t token, Urgency urgency = Urgency::normal);
  // The halves of a frame, each for the queue of its own socket. Neither passes anybody: payloads on one
  // socket follow the order of their headers on the other.
  void push_header(const WireHeader& header, std::size_t written,
                   Urgency urgency = Urgency::normal);
  void push_payload(const WireHeader& header, const void* payload, std::size_t written,
                    std::uint64_t token, Urgency urgency = Urgency::normal);
  // Writes as much as the socket takes, several frames a call.
  Written write(ByteStreamRef stream, std::vector<Completion>& completed);
  // Copies what is still lent for the channel; its tokens are dropped.
  void forget(std::uint32_t channel);
  void clear();

 private:
  struct Frame {
    WireHeader wire;
    const std::byte* payload = nullptr;  // when lent
    std::string copy;                    // when not
    std::uint64_t token = 0;
    bool lent = false;
    bool large = false;    // small ones of other channels may pass it
    bool in_turn = false;  // it passes nobody
    Urgency urgency = Urgency::normal;
    std::size_t header_bytes = sizeof(WireHeader);  // 0: only the payload leaves here
    std::size_t payload_bytes = 0;
    std::uint32_t channel() const { return wire.header.channel; }
    std::size_t size() const { return header_bytes + payload_bytes; }
    const std::byte* data() const {
      return lent ? payload : reinterpret_cast<const std::byte*>(copy.data());
    }
    bool gives_way_to(const Frame& other) const {
      return urgency < other.urgency || (urgency == other.urgency && large && !other.large);
    }
  };
  static Frame half_of(const WireHeader& header, Urgency urgency);
  void push(Frame frame, std::size_t written);
  std::size_t place_for(const Frame& frame) const;
  void advance(std::size_t written, std::vector<Completion>& completed);

  std::deque<Frame> frames_;
  std::size_t written_ = 0;  // of the first frame
  // The stream took no more the last time. Under TLS it may hold the first byte of the first frame,
  // encrypted, of which nothing counts as written yet.
  bool is_held_up_ = false;
  std::array<std::size_t, 3> bytes_{};  // not written yet, headers and all; by urgency
};

}  // namespace tutti::transport
