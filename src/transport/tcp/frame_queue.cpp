#include "transport/tcp/frame_queue.hpp"

#include <sys/uio.h>

#include <algorithm>
#include <cerrno>

namespace tutti::transport {
namespace {

constexpr std::size_t kFramesAtOnce = 16;

iovec part(const void* data, std::size_t bytes) { return {const_cast<void*>(data), bytes}; }

}  // namespace

ssize_t FrameQueue::write_one(ByteStreamRef stream, const WireHeader* header, const void* payload,
                              std::size_t bytes) {
  iovec parts[2];
  std::size_t count = 0;
  if (header != nullptr) parts[count++] = part(header, sizeof *header);
  if (bytes > 0) parts[count++] = part(payload, bytes);
  return stream.send(parts, count);
}

void FrameQueue::push_copy(const WireHeader& wire, const void* payload, std::size_t written,
                           Urgency urgency) {
  Frame frame;
  frame.wire = wire;
  frame.payload_bytes = wire.header.bytes;
  frame.copy.assign(static_cast<const char*>(payload), wire.header.bytes);
  frame.urgency = urgency;
  push(std::move(frame), written);
}

void FrameQueue::push_lent(const WireHeader& wire, const void* payload, std::size_t written,
                           std::uint64_t token, Urgency urgency) {
  Frame frame;
  frame.wire = wire;
  frame.payload_bytes = wire.header.bytes;
  frame.payload = static_cast<const std::byte*>(payload);
  frame.token = token;
  frame.lent = frame.large = true;
  frame.urgency = urgency;
  push(std::move(frame), written);
}

FrameQueue::Frame FrameQueue::half_of(const WireHeader& wire, Urgency urgency) {
  Frame frame;
  frame.wire = wire;
  frame.in_turn = true;
  frame.urgency = urgency;
  return frame;
}

void FrameQueue::push_header(const WireHeader& wire, std::size_t written, Urgency urgency) {
  push(half_of(wire, urgency), written);
}

void FrameQueue::push_payload(const WireHeader& wire, const void* payload, std::size_t written,
                              std::uint64_t token, Urgency urgency) {
  Frame frame = half_of(wire, urgency);
  frame.header_bytes = 0;
  frame.payload_bytes = wire.header.bytes;
  frame.payload = static_cast<const std::byte*>(payload);
  frame.token = token;
  frame.lent = frame.large = true;
  push(std::move(frame), written);
}

void FrameQueue::push(Frame frame, std::size_t written) {
  if (frames_.empty()) written_ = written;
  bytes_[static_cast<std::size_t>(frame.urgency)] += frame.size() - written;
  const std::size_t place = frame.in_turn ? frames_.size() : place_for(frame);
  frames_.insert(frames_.begin() + static_cast<std::ptrdiff_t>(place), std::move(frame));
}

// Before the first frame that gives way, behind everything of the same channel and what is partly out.
std::size_t FrameQueue::place_for(const Frame& frame) const {
  const std::size_t started = (written_ > 0 || is_held_up_) && !frames_.empty() ? 1 : 0;
  std::size_t place = frames_.size();
  while (place > started && frames_[place - 1].channel() != frame.channel()) --place;
  while (place < frames_.size() && !frames_[place].gives_way_to(frame)) ++place;
  return place;
}

std::size_t FrameQueue::bytes_before(Urgency urgency) const {
  std::size_t bytes = 0;
  for (auto each = static_cast<std::size_t>(urgency); each < bytes_.size(); ++each)
    bytes += bytes_[each];
  return bytes;
}

FrameQueue::Written FrameQueue::write(ByteStreamRef stream, std::vector<Completion>& completed) {
  while (!frames_.empty()) {
    iovec parts[2 * kFramesAtOnce];
    std::size_t count = 0;
    std::size_t skip = written_;
    for (std::size_t i = 0; i < std::min(frames_.size(), kFramesAtOnce); ++i, skip = 0) {
      const Frame& frame = frames_[i];
      const std::size_t of_header = std::min(skip, frame.header_bytes);
      const std::size_t of_payload = skip - of_header;
      if (of_header < frame.header_bytes)
        parts[count++] = part(reinterpret_cast<const std::byte*>(&frame.wire) + of_header,
                              frame.header_bytes - of_header);
      if (of_payload < frame.payload_bytes)
        parts[count++] = part(frame.data() + of_payload, frame.payload_bytes - of_payload);
    }
    const ssize_t sent = stream.send(parts, count);
    is_held_up_ = sent < 0 && (errno == EAGAIN || errno == EWOULDBLOCK);
    if (sent < 0) return is_held_up_ ? Written::some : Written::failed;
    advance(static_cast<std::size_t>(sent), completed);
  }
  return Written::all;
}

void FrameQueue::advance(std::size_t written, std::vector<Completion>& completed) {
  while (written > 0) {
    const Frame& frame = frames_.front();
    const std::size_t of_frame = std::min(written, frame.size() - written_);
    bytes_[static_cast<std::size_t>(frame.urgency)] -= of_frame;
    written -= of_frame;
    written_ += of_frame;
    if (written_ < frame.size()) return;
    written_ = 0;
    if (frame.lent) completed.push_back({frame.channel(), frame.token});
    frames_.pop_front();
  }
}

void FrameQueue::forget(std::uint32_t channel) {
  for (Frame& frame : frames_) {
    if (!frame.lent || frame.channel() != channel) continue;
    frame.copy.assign(reinterpret_cast<const char*>(frame.payload), frame.payload_bytes);
    frame.lent = false;
  }
}

void FrameQueue::clear() {
  frames_.clear();
  written_ = 0;
  bytes_ = {};
  is_held_up_ = false;
}

}  // namespace tutti::transport
