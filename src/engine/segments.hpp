// engine/segments.hpp - what has come of one message: segments in order, used from the front.
#pragma once

#include <array>
#include <cstdint>
#include <cstring>
#include <deque>

#include "transport/link.hpp"

namespace tutti::engine {

// A received segment. Small ones are kept here, larger ones stay where the link put them, on lease.
struct Segment {
  std::uint64_t bytes = 0;
  std::uint64_t used = 0;
  std::uint64_t lease = 0;
  const std::byte* view = nullptr;
  bool placed = false;  // already where it belongs
  std::array<std::byte, transport::kInlineBytes> small;

  static Segment keep(const transport::Header& header, const transport::Payload& payload) {
    Segment segment;
    segment.bytes = header.bytes;
    segment.lease = payload.lease;
    segment.placed = payload.placed;
    if (payload.lease != 0)
      segment.view = payload.data;
    else if (!segment.placed && header.bytes <= transport::kInlineBytes && header.bytes > 0)
      std::memcpy(segment.small.data(), payload.data, header.bytes);
    return segment;
  }
  const std::byte* data() const { return (lease != 0 ? view : small.data()) + used; }
};

class SegmentQueue {
 public:
  void clear() {
    segments_.clear();
    received_ = 0;
    opened_ = false;
  }
  void push(Segment segment) {
    received_ += segment.bytes;
    opened_ = true;
    // Zero bytes say only "I have come this far": opened() keeps that.
    if (segment.bytes != 0) segments_.push_back(segment);
  }
  bool empty() const { return segments_.empty(); }
  Segment& front() { return segments_.front(); }
  void pop() { segments_.pop_front(); }
  // Bytes that have come so far, used or not; whether anything has.
  std::uint64_t received() const { return received_; }
  bool opened() const { return opened_; }

 private:
  std::deque<Segment> segments_;
  std::uint64_t received_ = 0;
  bool opened_ = false;
};

}  // namespace tutti::engine
