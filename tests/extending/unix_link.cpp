#include "extending/unix_link.hpp"

#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

namespace tutti::toys {

Sent UnixLink::send(const Header& header, const void* payload, std::size_t bytes, std::uint64_t) {
  const bool divisible = header.kind == MessageKind::data || header.kind == MessageKind::bulk;
  const bool refusable = divisible || header.kind == MessageKind::eager;
  std::lock_guard lock(mutex_);
  if (refusable && out_.size() >= kQueueBytes) return {};
  Header frame = header;
  frame.bytes = divisible ? std::min(bytes, kFrameBytes) : bytes;
  frame.flags &= static_cast<std::uint8_t>(~kHold);
  out_.append(reinterpret_cast<const char*>(&frame), sizeof frame);
  out_.append(static_cast<const char*>(payload), frame.bytes);
  write_queue();
  return {true, false, frame.bytes};
}

// With the lock held. A peer that is gone takes nothing; poll finds out.
void UnixLink::write_queue() {
  const ssize_t sent = ::send(socket_.get(), out_.data(), out_.size(), MSG_NOSIGNAL | MSG_DONTWAIT);
  if (sent > 0) out_.erase(0, static_cast<std::size_t>(sent));
  if (sent < 0 && errno != EAGAIN && errno != EINTR) out_.clear();
  backlog_ = !out_.empty();
}

bool UnixLink::flush() {
  std::lock_guard lock(mutex_);
  if (!out_.empty()) write_queue();
  return out_.empty();
}

void UnixLink::release(std::uint64_t lease) {
  std::lock_guard lock(mutex_);
  leased_.erase(lease);
}

bool UnixLink::read_socket() {
  char bytes[kFrameBytes];
  bool some = false;
  while (true) {
    const ssize_t got = ::recv(socket_.get(), bytes, sizeof bytes, MSG_DONTWAIT);
    if (got <= 0) {
      ended_ = got == 0 || (errno != EAGAIN && errno != EINTR);
      readable_ = false;
      return some;
    }
    in_.append(bytes, static_cast<std::size_t>(got));
    some = true;
  }
}

bool UnixLink::poll(MessageSink& sink) {
  flush();
  bool moved = readable_ && read_socket();
  std::size_t at = 0;
  Header header;
  while (in_.size() - at >= sizeof header) {
    std::memcpy(&header, in_.data() + at, sizeof header);
    if (in_.size() - at < sizeof header + header.bytes) break;
    deliver(sink, header, in_.data() + at + sizeof header);
    at += sizeof header + header.bytes;
  }
  in_.erase(0, at);
  if (!ended_ || reported_) return moved;
  reported_ = true;
  sink.on_down(peer_,
               {Code::peer_lost, "rank " + std::to_string(peer_) + " hung up", {self_, peer_, 0}});
  return true;
}

void UnixLink::deliver(MessageSink& sink, const Header& header, const char* data) {
  Payload payload;
  const bool divisible = header.kind == MessageKind::data || header.kind == MessageKind::bulk;
  if (std::byte* place = divisible ? sink.place(peer_, header) : nullptr) {
    std::memcpy(place, data, header.bytes);
    payload.placed = true;
  } else if (header.bytes <= kInlineBytes) {
    payload.data = reinterpret_cast<const std::byte*>(data);
  } else {
    std::lock_guard lock(mutex_);
    payload.lease = ++leases_;
    const std::string& kept = leased_[payload.lease] = std::string(data, header.bytes);
    payload.data = reinterpret_cast<const std::byte*>(kept.data());
  }
  sink.on_message(peer_, header, payload);
}

}  // namespace tutti::toys
