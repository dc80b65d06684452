#include "transport/tcp/frame_reader.hpp"

#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

namespace tutti::transport {
namespace {

constexpr std::size_t kStagingBytes = 64 * 1024;
// Below this a detour through the staging buffer is cheaper than a system call of its own.
constexpr std::size_t kDirectBytes = 16 * 1024;
// What one poll reads at most, so that no peer starves the others.
constexpr std::size_t kReadAtOnce = std::size_t{2} << 20;

}  // namespace

bool is_sane(const Header& header) noexcept {
  switch (header.kind) {
    case MessageKind::data:
    case MessageKind::eager:
    case MessageKind::bulk:
      return header.bytes <= kMaxFrameBytes;
    case MessageKind::arrive:
    case MessageKind::request:
    case MessageKind::ready:
    case MessageKind::credit:
    case MessageKind::query:
    case MessageKind::report:
    case MessageKind::abort:
    case MessageKind::goodbye:
    case MessageKind::bell:
      return header.bytes <= kMaxControlBytes;
  }
  return false;
}

FrameReader::FrameReader(int peer, BufferPool& pool)
    : peer_(peer),
      pool_(pool),
      staging_(std::make_unique_for_overwrite<std::byte[]>(kStagingBytes)) {}

FrameReader::End FrameReader::read(int socket, Sink& sink) {
  for (std::size_t total = 0; total < kReadAtOnce;) {
    const ssize_t got = fill(socket);
    if (got == 0) return End::closed;
    if (got < 0) return errno == EAGAIN || errno == EWOULDBLOCK ? End::drained : End::failed;
    total += static_cast<std::size_t>(got);
    while (parse(sink)) {
    }
    if (corrupt_) return End::corrupt;
  }
  return End::more;
}

// Reads into the target if much is missing there, else into the staging buffer.
ssize_t FrameReader::fill(int socket) {
  const std::size_t missing = target_ != nullptr ? header_.bytes - got_ : 0;
  const bool direct = missing >= kDirectBytes && staged() == 0;
  if (!direct && begin_ > 0) {
    std::memmove(staging_.get(), staging_.get() + begin_, staged());
    end_ -= begin_;
    begin_ = 0;
  }
  std::byte* into = direct ? target_ + got_ : staging_.get() + end_;
  ssize_t got = 0;
  do {
    got = ::recv(socket, into, direct ? missing : kStagingBytes - end_, MSG_DONTWAIT);
  } while (got < 0 && errno == EINTR);
  if (got > 0) (direct ? got_ : end_) += static_cast<std::size_t>(got);
  return got;
}

// One step on what is staged. False: more bytes are needed.
bool FrameReader::parse(Sink& sink) {
  if (!has_header_) {
    if (staged() < sizeof header_) return false;
    std::memcpy(&header_, staging_.get() + begin_, sizeof header_);
    corrupt_ = !is_sane(header_);
    if (corrupt_) return false;
    begin_ += sizeof header_;
    has_header_ = true;
    if (header_.bytes > kInlineBytes) start_payload(sink);
  }
  if (target_ == nullptr) return parse_small(sink);
  const std::size_t part = std::min<std::size_t>(staged(), header_.bytes - got_);
  std::memcpy(target_ + got_, staging_.get() + begin_, part);
  begin_ += part;
  got_ += part;
  if (got_ < header_.bytes) return false;
  finish_payload(sink);
  return true;
}

bool FrameReader::parse_small(Sink& sink) {
  if (staged() < header_.bytes) return false;
  alignas(16) std::byte payload[kInlineBytes];  // the staging buffer aligns nothing
  std::memcpy(payload, staging_.get() + begin_, header_.bytes);
  begin_ += header_.bytes;
  has_header_ = false;
  if (header_.kind != MessageKind::bell) sink.on_message(peer_, header_, {payload, 0, false});
  return true;
}

void FrameReader::start_payload(Sink& sink) {
  got_ = 0;
  lease_ = 0;
  target_ = nullptr;
  if (header_.kind == MessageKind::data || header_.kind == MessageKind::bulk)
    target_ = sink.place(peer_, header_);
  if (target_ != nullptr) return;
  const BufferPool::Buffer buffer = pool_.take(header_.bytes);
  target_ = buffer.data;
  lease_ = buffer.lease;
}

void FrameReader::finish_payload(Sink& sink) {
  const Payload payload{target_, lease_, lease_ == 0};
  target_ = nullptr;
  has_header_ = false;
  if (header_.kind == MessageKind::bell) return pool_.release(payload.lease);
  sink.on_message(peer_, header_, payload);
}

void FrameReader::forget(std::uint32_t channel) {
  if (target_ == nullptr || lease_ != 0 || header_.channel != channel) return;
  const BufferPool::Buffer buffer = pool_.take(header_.bytes);
  std::memcpy(buffer.data, target_, got_);
  target_ = buffer.data;
  lease_ = buffer.lease;
}

}  // namespace tutti::transport
