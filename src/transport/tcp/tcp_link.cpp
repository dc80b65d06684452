#include "transport/tcp/tcp_link.hpp"

#include <fmt/format.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/epoll.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <mutex>

#include "core/check.hpp"

namespace tutti::transport {
namespace {

constexpr std::size_t kCopyBytes = 16 * 1024;
constexpr std::size_t kQueueBytes = std::size_t{4} << 20;

// The kernel's defaults leave a host that lost its power unnoticed for minutes to hours.
void watch_for_silence(int socket) {
  const auto set = [socket](int level, int option, int value) {
    (void)::setsockopt(socket, level, option, &value, sizeof value);
  };
  set(SOL_SOCKET, SO_KEEPALIVE, 1);
  set(IPPROTO_TCP, TCP_KEEPIDLE, 5);
  set(IPPROTO_TCP, TCP_KEEPINTVL, 2);
  set(IPPROTO_TCP, TCP_KEEPCNT, 5);
  set(IPPROTO_TCP, TCP_USER_TIMEOUT, 15'000);
}

}  // namespace

TcpLink::TcpLink(int self, int peer, Descriptor socket, std::size_t segment_bytes,
                 std::string whereabouts)
    : self_(self),
      peer_(peer),
      socket_(std::move(socket)),
      segment_bytes_(std::clamp<std::size_t>(segment_bytes, kCopyBytes, kMaxFrameBytes)),
      whereabouts_(std::move(whereabouts)),
      reader_(peer, pool_) {
  watch_for_silence(socket_.get());
}

TcpLink::~TcpLink() {
  // An orderly end: the peer reads everything that was written, then the end of the stream.
  if (socket_) ::shutdown(socket_.get(), SHUT_WR);
}

std::size_t TcpLink::eager_bytes() const { return kCopyBytes; }

Sent TcpLink::send(const Header& given, const void* payload, std::size_t bytes,
                   std::uint64_t token) {
  if (down_.load(std::memory_order_acquire)) return {true, false, bytes};
  const bool splits = given.kind == MessageKind::data || given.kind == MessageKind::bulk;
  const bool control = !splits && given.kind != MessageKind::eager;
  if (splits) bytes = std::min(bytes, segment_bytes_);
  TUTTI_CHECK(bytes <= (control ? kMaxControlBytes : kMaxFrameBytes));
  Header header = given;
  header.bytes = bytes;

  std::lock_guard lock(lock_);
  if (!control && queue_.bytes() >= kQueueBytes) return {};
  std::size_t written = 0;
  if (queue_.empty()) {
    const ssize_t went = FrameQueue::write_one(socket_.get(), header, payload);
    if (went < 0 && errno != EAGAIN && errno != EWOULDBLOCK) {
      // poll says why, after everything that the peer had sent was read.
      write_failed_.store(true, std::memory_order_release);
      return {true, false, bytes};
    }
    written = went > 0 ? static_cast<std::size_t>(went) : 0;
    if (written == sizeof header + bytes) return {true, false, bytes};
  }
  if (splits && bytes > kCopyBytes) {
    queue_.push_lent(header, payload, written, token);
    return {true, true, bytes};
  }
  queue_.push_copy(header, payload, written);
  return {true, false, bytes};
}

void TcpLink::on_ready(std::uint32_t events) {
  if ((events & ~static_cast<std::uint32_t>(EPOLLOUT)) != 0) readable_ = true;
  if ((events & EPOLLOUT) != 0) writable_ = true;
}

bool TcpLink::ready() const {
  return !down_.load(std::memory_order_relaxed) &&
         (readable_ || writable_ || has_completed_.load(std::memory_order_acquire) ||
          write_failed_.load(std::memory_order_acquire));
}

bool TcpLink::flush() {
  write_queued();
  std::lock_guard lock(lock_);
  return queue_.empty();
}

// True if the socket took anything.
bool TcpLink::write_queued() {
  std::lock_guard lock(lock_);
  const std::size_t before = queue_.bytes();
  if (before == 0) return false;
  const auto written = queue_.write(socket_.get(), completed_);
  if (!completed_.empty()) has_completed_.store(true, std::memory_order_release);
  if (written == FrameQueue::Written::failed) {
    queue_.clear();
    write_failed_.store(true, std::memory_order_release);
  }
  return queue_.bytes() != before;
}

bool TcpLink::poll(Sink& sink) {
  if (down_.load(std::memory_order_relaxed)) return false;
  // Room counts as something that happened: whoever was refused may be about to sleep over it.
  bool happened = std::exchange(writable_, false) && write_queued();
  happened |= complete(sink);
  const bool failed = write_failed_.load(std::memory_order_acquire);
  if (readable_ || failed) happened |= receive(sink);
  return happened;
}

bool TcpLink::complete(Sink& sink) {
  if (!has_completed_.load(std::memory_order_acquire)) return false;
  std::vector<Completion> completed;
  {
    std::lock_guard lock(lock_);
    completed.swap(completed_);
    has_completed_.store(false, std::memory_order_relaxed);
  }
  for (const Completion& done : completed) sink.on_sent(done.token);
  return true;
}

bool TcpLink::receive(Sink& sink) {
  const bool failed = write_failed_.load(std::memory_order_acquire);
  switch (reader_.read(socket_.get(), sink)) {
    case FrameReader::End::more: return true;
    case FrameReader::End::drained:
      readable_ = false;
      if (failed) go_down(sink, Code::peer_lost, "it does not take any more data");
      return true;
    case FrameReader::End::closed:
      go_down(sink, Code::peer_lost, "it closed its connection");
      return true;
    case FrameReader::End::failed:
      go_down(sink, Code::peer_lost, std::strerror(errno));
      return true;
    case FrameReader::End::corrupt:
      go_down(sink, Code::corrupt,
              fmt::format("it sent a frame that cannot be one (kind {}, {} bytes)",
                          static_cast<int>(reader_.bad_header().kind), reader_.bad_header().bytes));
      return true;
  }
  return true;
}

void TcpLink::go_down(Sink& sink, Code code, const std::string& why) {
  down_.store(true, std::memory_order_release);
  ::shutdown(socket_.get(), SHUT_RDWR);
  {
    std::lock_guard lock(lock_);
    queue_.clear();
    completed_.clear();
  }
  const char* verb = code == Code::corrupt ? "cannot be understood" : "is gone";
  const auto text = fmt::format("rank {} ({}) {}: {}", peer_, whereabouts_, verb, why);
  sink.on_down(peer_, Status(code, text, {self_, peer_, 0}));
}

void TcpLink::forget(std::uint32_t channel) {
  reader_.forget(channel);
  std::lock_guard lock(lock_);
  queue_.forget(channel);
  std::erase_if(completed_, [channel](const Completion& done) { return done.channel == channel; });
}

}  // namespace tutti::transport
