#include "transport/tcp/frame_reader.hpp"

#include <algorithm>
#include <cerrno>
#include <cstring>

namespace tutti::transport {
namespace {

constexpr std::size_t kStagingBytes = 64 * 1024;
// Below this a detour through the staging buffer is cheaper than a system call of its own.
constexpr std::size_t kDirectBytes = 16 * 1024;
constexpr std::size_t kBulkyBytes = 512;
// What one poll reads at most, so that no peer starves the others.
constexpr std::size_t kReadAtOnce = 512 * 1024;
constexpr const char* kBadCheck =
    "a frame that does not fit its checksum: the link, or a machine on its way, damages data";
// Frames that may wait for a payload on another stream.
constexpr std::size_t kMaxWaiting = 64;

// What a receive that brought nothing means, after `total` bytes of this call.
FrameReader::End end_of(ssize_t got, std::size_t total) {
  if (got == 0) return FrameReader::End::closed;
  if (errno != EAGAIN && errno != EWOULDBLOCK) return FrameReader::End::failed;
  return total == 0 ? FrameReader::End::nothing : FrameReader::End::drained;
}

}  // namespace

FrameReader::FrameReader(int peer, BufferPool& pool, std::size_t streams, bool checked)
    : peer_(peer),
      checked_(checked),
      pool_(pool),
      staging_(std::make_unique_for_overwrite<std::byte[]>(kStagingBytes)),
      asides_(streams) {}

FrameReader::End FrameReader::read(std::size_t stream, ByteStreamRef socket, MessageSink& sink) {
  return stream == 0 ? read_frames(socket, sink) : read_aside(stream, socket, sink);
}

FrameReader::End FrameReader::read_frames(ByteStreamRef socket, MessageSink& sink) {
  std::size_t total = parse_staged(sink) ? 1 : 0;  // left from when too many waited
  while (flaw_ == nullptr && total < kReadAtOnce) {
    if (waiting_.size() >= kMaxWaiting) return total == 0 ? End::waiting : End::more;
    std::size_t asked = 0;
    const ssize_t got = fill(socket, asked);
    if (got <= 0) return end_of(got, total);
    total += static_cast<std::size_t>(got);
    parse_staged(sink);
    // Less than asked for: there was no more. It saves the call that would only say so.
    if (static_cast<std::size_t>(got) < asked && waiting_.size() < kMaxWaiting && flaw_ == nullptr)
      return End::drained;
  }
  return flaw_ != nullptr ? End::corrupt : End::more;
}

// True if there was anything.
bool FrameReader::parse_staged(MessageSink& sink) {
  bool parsed = false;
  while (waiting_.size() < kMaxWaiting && parse(sink)) parsed = true;
  return parsed;
}

FrameReader::End FrameReader::read_aside(std::size_t stream, ByteStreamRef socket,
                                         MessageSink& sink) {
  std::deque<Waiting*>& expected = asides_[stream];
  for (std::size_t total = 0; total < kReadAtOnce;) {
    // What comes before its header on stream 0 stays in the kernel; an end is seen all the same.
    std::byte peeked{};
    Landing* landing = expected.empty() ? nullptr : &expected.front()->landing;
    std::byte* into = landing != nullptr ? landing->target + landing->got : &peeked;
    const std::size_t asked = landing != nullptr ? landing->header.bytes - landing->got : 1;
    const ssize_t got = socket.receive(into, asked, landing == nullptr);
    if (got <= 0) return end_of(got, total);
    if (landing == nullptr) return total == 0 ? End::waiting : End::more;
    take(*landing, static_cast<std::size_t>(got));
    total += static_cast<std::size_t>(got);
    if (landing->whole()) {
      if (!is_intact(*landing)) return End::corrupt;
      expected.front()->here = true;
      expected.pop_front();
      deliver_waiting(sink);
    } else if (static_cast<std::size_t>(got) < asked) {
      return End::drained;
    }
  }
  return End::more;
}

// Reads into the target if much is missing there, else into the staging buffer.
ssize_t FrameReader::fill(ByteStreamRef socket, std::size_t& asked) {
  const std::size_t missing = landing_ ? current_.header.bytes - current_.got : 0;
  const bool direct = missing >= kDirectBytes && staged() == 0;
  if (!direct && begin_ > 0) {
    std::memmove(staging_.get(), staging_.get() + begin_, staged());
    end_ -= begin_;
    begin_ = 0;
  }
  // Among large frames a header is read almost alone: what comes behind it into the staging buffer
  // has to be copied once more.
  const std::size_t room = bulky_ ? std::max(end_, kBulkyBytes) - end_ : kStagingBytes - end_;
  asked = direct ? missing : std::max<std::size_t>(room, sizeof(WireHeader));
  const ssize_t got =
      socket.receive(direct ? current_.target + current_.got : staging_.get() + end_, asked);
  if (got > 0 && direct)
    take(current_, static_cast<std::size_t>(got));
  else if (got > 0)
    end_ += static_cast<std::size_t>(got);
  return got;
}

// One step on what is staged. False: more bytes are needed.
bool FrameReader::parse(MessageSink& sink) {
  if (!has_header_) {
    if (staged() < sizeof wire_) return false;
    std::memcpy(static_cast<void*>(&wire_), staging_.get() + begin_, sizeof wire_);
    flaw_ = find_flaw();
    if (flaw_ != nullptr) return false;
    const std::uint16_t stream = header_.spare;
    begin_ += sizeof wire_;
    header_.spare = 0;  // it has said its word
    bulky_ = header_.bytes >= kStagingBytes;
    if (stream != 0) {
      waiting_.push_back({start(header_, sink), false, false, {}});
      asides_[stream].push_back(&waiting_.back());
      return true;
    }
    has_header_ = true;
    landing_ = header_.bytes > kInlineBytes;
    if (landing_) current_ = start(header_, sink);
  }
  if (!landing_) return parse_small(sink);
  const std::size_t part = std::min<std::size_t>(staged(), current_.header.bytes - current_.got);
  std::memcpy(current_.target + current_.got, staging_.get() + begin_, part);
  begin_ += part;
  take(current_, part);
  if (!current_.whole() || !is_intact(current_)) return false;
  landing_ = has_header_ = false;
  finish(current_, sink);
  return true;
}

const char* FrameReader::find_flaw() {
  if (checked_ && wire_.check() != wire_.header_check) return kBadCheck;
  payload_checked_ = checked_ && (header_.flags & kUnchecked) == 0;
  if (checked_) header_.flags &= static_cast<std::uint8_t>(~kUnchecked);
  const bool lendable = header_.kind == MessageKind::data || header_.kind == MessageKind::bulk;
  if (header_.spare >= asides_.size()) return "a message on a stream that is not there";
  if (header_.spare != 0 && (!lendable || header_.bytes == 0))
    return "a message on a stream that its kind does not use";
  return flaw_in(header_, kMaxFrameBytes);
}

// `bytes` more of a payload are in their place.
void FrameReader::take(Landing& landing, std::size_t bytes) {
  if (landing.checked) landing.check = crc32c(landing.target + landing.got, bytes, landing.check);
  landing.got += bytes;
}

// Asked before anybody hears of a payload.
bool FrameReader::is_intact(const Landing& landing) {
  if (!landing.checked || landing.check == landing.expected) return true;
  flaw_ = kBadCheck;
  return false;
}

bool FrameReader::parse_small(MessageSink& sink) {
  if (staged() < header_.bytes) return false;
  alignas(16) std::array<std::byte, kInlineBytes> payload;  // the staging buffer aligns nothing
  std::memcpy(payload.data(), staging_.get() + begin_, header_.bytes);
  if (payload_checked_ && crc32c(payload.data(), header_.bytes) != wire_.payload_check) {
    flaw_ = kBadCheck;
    return false;
  }
  begin_ += header_.bytes;
  has_header_ = false;
  if (header_.kind == MessageKind::bell) {
    if (header_.step == kEndBell && header_.bytes == sizeof(SocketEnd))
      std::memcpy(&peer_end_.emplace(), payload.data(), sizeof(SocketEnd));
    return true;
  }
  if (must_wait(header_.channel))
    waiting_.push_back({{.header = header_}, true, true, payload});
  else
    sink.on_message(peer_, header_, {payload.data(), 0, false});
  return true;
}

FrameReader::Landing FrameReader::start(const Header& header, MessageSink& sink) {
  Landing landing{.header = header, .checked = payload_checked_, .expected = wire_.payload_check};
  if (header.kind == MessageKind::data || header.kind == MessageKind::bulk)
    landing.target = sink.place(peer_, header);
  if (landing.target != nullptr) return landing;
  const BufferPool::Buffer buffer = pool_.take(header.bytes);
  landing.target = buffer.data;
  landing.lease = buffer.lease;
  return landing;
}

void FrameReader::finish(const Landing& landing, MessageSink& sink) {
  if (must_wait(landing.header.channel))
    waiting_.push_back({landing, false, true, {}});
  else
    deliver(landing, sink);
}

// Only within a channel messages come in order.
bool FrameReader::must_wait(std::uint32_t channel) const {
  return std::any_of(waiting_.begin(), waiting_.end(), [channel](const Waiting& frame) {
    return frame.landing.header.channel == channel;
  });
}

void FrameReader::deliver(const Landing& landing, MessageSink& sink) {
  if (landing.header.kind == MessageKind::bell) return pool_.release(landing.lease);
  sink.on_message(peer_, landing.header, {landing.target, landing.lease, landing.lease == 0});
}

// Those that are here, and behind nothing of their channel that is not.
void FrameReader::deliver_waiting(MessageSink& sink) {
  std::vector<std::uint32_t> held_up;
  for (auto at = waiting_.begin(); at != waiting_.end();) {
    const std::uint32_t channel = at->landing.header.channel;
    const bool is_behind = std::find(held_up.begin(), held_up.end(), channel) != held_up.end();
    if (!at->here || is_behind) {
      if (!is_behind) held_up.push_back(channel);
      ++at;
      continue;
    }
    if (at->small)
      sink.on_message(peer_, at->landing.header, {at->inline_bytes.data(), 0, false});
    else
      deliver(at->landing, sink);
    at = waiting_.erase(at);
  }
}

void FrameReader::move_away(Landing& landing, std::uint32_t channel) {
  if (landing.lease != 0 || landing.header.channel != channel) return;
  const BufferPool::Buffer buffer = pool_.take(landing.header.bytes);
  std::memcpy(buffer.data, landing.target, landing.got);
  landing.target = buffer.data;
  landing.lease = buffer.lease;
}

void FrameReader::forget(std::uint32_t channel) {
  if (landing_) move_away(current_, channel);
  for (Waiting& frame : waiting_)
    if (!frame.small) move_away(frame.landing, channel);
}

}  // namespace tutti::transport
