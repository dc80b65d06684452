#include "transport/tcp/frame_queue.hpp"

#include <sys/socket.h>
#include <sys/uio.h>

#include <algorithm>
#include <cerrno>

namespace tutti::transport {
namespace {

constexpr std::size_t kFramesAtOnce = 16;

ssize_t send_vector(int socket, iovec* parts, std::size_t count) {
  msghdr message{};
  message.msg_iov = parts;
  message.msg_iovlen = count;
  ssize_t sent = 0;
  do {
    sent = ::sendmsg(socket, &message, MSG_NOSIGNAL | MSG_DONTWAIT);
  } while (sent < 0 && errno == EINTR);
  return sent;
}

iovec part(const void* data, std::size_t bytes) { return {const_cast<void*>(data), bytes}; }

}  // namespace

ssize_t FrameQueue::write_one(int socket, const Header& header, const void* payload) {
  iovec parts[2] = {part(&header, sizeof header), part(payload, header.bytes)};
  return send_vector(socket, parts, header.bytes == 0 ? 1 : 2);
}

void FrameQueue::push_copy(const Header& header, const void* payload, std::size_t written) {
  Frame frame;
  frame.header = header;
  frame.copy.assign(static_cast<const char*>(payload), header.bytes);
  push(std::move(frame), written);
}

void FrameQueue::push_lent(const Header& header, const void* payload, std::size_t written,
                           std::uint64_t token) {
  Frame frame;
  frame.header = header;
  frame.payload = static_cast<const std::byte*>(payload);
  frame.token = token;
  frame.lent = true;
  push(std::move(frame), written);
}

void FrameQueue::push(Frame frame, std::size_t written) {
  if (frames_.empty()) written_ = written;
  bytes_ += frame.size() - written;
  frames_.push_back(std::move(frame));
  Frame& kept = frames_.back();
  if (!kept.lent) kept.payload = reinterpret_cast<const std::byte*>(kept.copy.data());
}

FrameQueue::Written FrameQueue::write(int socket, std::vector<Completion>& completed) {
  while (!frames_.empty()) {
    iovec parts[2 * kFramesAtOnce];
    std::size_t count = 0;
    std::size_t skip = written_;
    for (std::size_t i = 0; i < std::min(frames_.size(), kFramesAtOnce); ++i, skip = 0) {
      const Frame& frame = frames_[i];
      const std::size_t of_header = std::min(skip, sizeof(Header));
      const std::size_t of_payload = skip - of_header;
      if (of_header < sizeof(Header))
        parts[count++] = part(reinterpret_cast<const std::byte*>(&frame.header) + of_header,
                              sizeof(Header) - of_header);
      if (of_payload < frame.header.bytes)
        parts[count++] = part(frame.payload + of_payload, frame.header.bytes - of_payload);
    }
    const ssize_t sent = send_vector(socket, parts, count);
    if (sent < 0) return errno == EAGAIN || errno == EWOULDBLOCK ? Written::some : Written::failed;
    advance(static_cast<std::size_t>(sent), completed);
  }
  return Written::all;
}

void FrameQueue::advance(std::size_t written, std::vector<Completion>& completed) {
  bytes_ -= written;
  written_ += written;
  while (!frames_.empty() && written_ >= frames_.front().size()) {
    const Frame& frame = frames_.front();
    written_ -= frame.size();
    if (frame.lent) completed.push_back({frame.header.channel, frame.token});
    frames_.pop_front();
  }
}

void FrameQueue::forget(std::uint32_t channel) {
  for (Frame& frame : frames_) {
    if (!frame.lent || frame.header.channel != channel) continue;
    frame.copy.assign(reinterpret_cast<const char*>(frame.payload), frame.header.bytes);
    frame.payload = reinterpret_cast<const std::byte*>(frame.copy.data());
    frame.lent = false;
  }
}

void FrameQueue::clear() {
  frames_.clear();
  written_ = bytes_ = 0;
}

}  // namespace tutti::transport
