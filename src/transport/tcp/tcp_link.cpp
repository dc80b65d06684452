#include "transport/tcp/tcp_link.hpp"

#include <fmt/format.h>
#include <sys/epoll.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <mutex>

#include "core/check.hpp"
#include "transport/tcp/socket_options.hpp"

namespace tutti::transport {
namespace {

constexpr std::size_t kCopyBytes = 16 * 1024;
constexpr std::size_t kQueueBytes = std::size_t{4} << 20;
// How long a link may be busy with what lies in the kernel, and with one frame.
constexpr Nanoseconds kInKernel = std::chrono::milliseconds(2);
constexpr Nanoseconds kPerFrame = std::chrono::microseconds(500);
constexpr std::size_t kLeastFrame = 64 * 1024;
// Send buffers that are set by hand. More than the upper bound systems do not allow without asking
// (net.core.wmem_max), and the kernel's own choice, up to 4 MiB, is right for a link that takes so
// much in 2 ms; once a buffer was set the kernel does not choose any more.
constexpr std::size_t kLeastSendBuffer = 256 * 1024;
constexpr std::size_t kMostSendBuffer = 416 * 1024;
constexpr std::size_t kExpressUnsent = 64 * 1024;
// So many windows of Pace in a row make a connection a slow one: a core that was busy does not.
constexpr int kSlowWindows = 5;
// A longer way needs more bytes under way than that.
constexpr Nanoseconds kNearby = std::chrono::microseconds(500);
// How long the other streams of a peer may outlive one that has ended.
constexpr Nanoseconds kGrace = std::chrono::milliseconds(200);

}  // namespace

TcpLink::TcpLink(int self, int peer, std::vector<ByteStream> sockets, std::size_t segment_bytes,
                 std::string whereabouts, bool checked, Nanoseconds dead_after, const Clock& clock,
                 bool has_express)
    : clock_(clock),
      self_(self),
      peer_(peer),
      checked_(checked),
      // Whole lines, so that no element is ever cut in two.
      frame_bytes_(
          std::clamp<std::size_t>(2 * segment_bytes / 64 * 64, kCopyBytes, kMaxFrameBytes)),
      frame_now_(frame_bytes_),
      whereabouts_(std::move(whereabouts)),
      reader_(peer, pool_, sockets.size() - (has_express ? 1 : 0), checked),
      express_(peer, pool_, 1, checked),
      plain_streams_(sockets.size() - (has_express ? 1 : 0)) {
  TUTTI_CHECK(plain_streams_ >= 1 && plain_streams_ <= std::size_t{kMaxStreams});
  for (ByteStream& socket : sockets) {
    leave_silence_to_us(socket.get(), dead_after);
    streams_.emplace_back(std::move(socket));
  }
  // What has not left is to lie in the queue, where the other connections see it (gives_way).
  if (has_express) bound_unsent(streams_.back().socket.get(), kExpressUnsent);
  if (checked_ && plain_streams_ == 1) tell_end();
}

TcpLink::~TcpLink() {
  // An orderly end: the peer reads everything that was written, then the end of the stream.
  for (Stream& stream : streams_)
    if (stream.socket) ::shutdown(stream.socket.get(), SHUT_WR);
}

Status TcpLink::watch(Reactor& reactor) {
  for (Stream& stream : streams_)
    if (Status status = reactor.add(stream.socket.get(), stream); !status.ok()) return status;
  return {};
}

void TcpLink::abandon() noexcept {
  for (Stream& stream : streams_) stream.socket.reset();
}

void TcpLink::Stream::on_ready(std::uint32_t events) {
  if ((events & ~static_cast<std::uint32_t>(EPOLLOUT)) != 0) readable = true;
  if ((events & EPOLLOUT) != 0) writable = true;
  if ((events & (EPOLLRDHUP | EPOLLHUP | EPOLLERR)) != 0) ending = true;
}

std::size_t TcpLink::eager_bytes() const { return kEagerBytes; }

// ---- sending

Sent TcpLink::send(const Header& given, const void* payload, std::size_t bytes,
                   std::uint64_t token) {
  if (down_.load(std::memory_order_acquire)) return {true, false, bytes};
  const bool splits = given.kind == MessageKind::data || given.kind == MessageKind::bulk;
  const bool control = !splits && given.kind != MessageKind::eager;
  if (splits) bytes = std::min(bytes, frame_now_.load(std::memory_order_relaxed));
  TUTTI_CHECK(bytes <= (control ? kMaxControlBytes : kMaxFrameBytes));
  Header header = given;
  header.bytes = bytes;
  header.spare = 0;
  const bool hold = (header.flags & kHold) != 0;
  header.flags &= static_cast<std::uint8_t>(~kHold);
  Outgoing out{payload, token, splits && bytes > kCopyBytes};

  std::lock_guard lock(lock_);
  out.urgency = urgencies_.of(header.channel);
  // What gives way to it does not keep it from the queue.
  if (!control && queued_bytes(out.urgency) >= kQueueBytes) return {};
  Stream& whole = stream_for(out.urgency);
  if (hold && !out.lend) {
    if (whole.queue.empty()) held_.store(true, std::memory_order_release);
    whole.queue.push_copy(seal(header, payload, &whole != &streams_.front()), payload, 0,
                          out.urgency);
    return {true, false, bytes};
  }
  // In two halves it would pass nobody.
  const bool may_split = out.lend && out.urgency != Urgency::urgent;
  const std::size_t stream = may_split ? least_busy() : 0;
  return stream == 0 ? send_whole(whole, header, out) : send_apart(header, out, stream);
}

void TcpLink::set_urgency(std::uint32_t channel, Urgency urgency) {
  std::lock_guard lock(lock_);
  urgencies_.set(channel, urgency);
  has_urgent_.store(urgencies_.any(Urgency::urgent), std::memory_order_relaxed);
}

std::size_t TcpLink::queued_bytes(Urgency least) const {
  std::size_t bytes = 0;
  for (const Stream& stream : streams_) bytes += stream.queue.bytes_before(least);
  return bytes;
}

// Ties go to the last, so that the first is free for what is small.
std::size_t TcpLink::least_busy() const {
  std::size_t best = 0;
  for (std::size_t i = 1; i < plain_streams_; ++i)
    if (streams_[i].queue.bytes() <= streams_[best].queue.bytes()) best = i;
  return best;
}

WireHeader TcpLink::seal(const Header& header, const void* payload, bool on_express) const {
  if (!checked_) return WireHeader(header);
  return WireHeader::sealed(header, payload,
                            on_express || !direct_.load(std::memory_order_relaxed));
}

// Nothing on the way within one kernel damages data, and there a checksum costs a fifth of the throughput.
// Somebody between the two, though, is another end than the one that the peer tells of.
void TcpLink::tell_end() {
  const auto own = SocketEnd::of_own(streams_.front().socket.get());
  Header header = header_for(MessageKind::bell, 0, 0);
  header.step = kEndBell;
  if (own) (void)send(header, &*own, sizeof *own, 0);
}

void TcpLink::look_at_end() {
  const auto& claimed = reader_.peer_end();
  if (end_seen_ || !claimed) return;
  end_seen_ = true;
  const int socket = streams_.front().socket.get();
  const auto own = SocketEnd::of_own(socket);
  direct_ = own && own->is_at(*claimed) && SocketEnd::of_peer(socket) == claimed;
}

// False: the connection is broken. poll says why, after everything that the peer had sent was read.
bool TcpLink::try_write(Stream& stream, const WireHeader* header, const void* payload,
                        std::size_t bytes, std::size_t& written) {
  const ssize_t went = FrameQueue::write_one(stream.socket, header, payload, bytes);
  if (went < 0 && errno != EAGAIN && errno != EWOULDBLOCK) {
    write_failed_.store(true, std::memory_order_release);
    return false;
  }
  written = went > 0 ? static_cast<std::size_t>(went) : 0;
  return true;
}

Sent TcpLink::send_whole(Stream& stream, const Header& header, const Outgoing& out) {
  const std::size_t bytes = header.bytes;
  const WireHeader wire = seal(header, out.payload, &stream != &streams_.front());
  std::size_t written = 0;
  if (stream.queue.empty() && !gives_way(stream)) {
    if (!try_write(stream, &wire, out.payload, bytes, written)) return {true, false, bytes};
    if (written == sizeof wire + bytes) return {true, false, bytes};
  }
  if (out.lend)
    stream.queue.push_lent(wire, out.payload, written, out.token, out.urgency);
  else
    stream.queue.push_copy(wire, out.payload, written, out.urgency);
  // Nothing waits for the socket: what was held goes now, in the same call.
  if (held_.exchange(false)) write_all();
  note_backlog();
  return {true, out.lend, bytes};
}

// The header on the first stream, the payload on another.
Sent TcpLink::send_apart(Header header, const Outgoing& out, std::size_t index) {
  Stream& first = streams_.front();
  Stream& aside = streams_[index];
  const std::size_t bytes = header.bytes;
  header.spare = static_cast<std::uint16_t>(index);
  const WireHeader wire = seal(header, out.payload);
  std::size_t written = 0;
  if (first.queue.empty() && !try_write(first, &wire, nullptr, 0, written))
    return {true, false, bytes};
  if (written < sizeof wire) first.queue.push_header(wire, written, out.urgency);
  if (held_.exchange(false)) write_all();
  written = 0;
  if (aside.queue.empty() && !gives_way(aside) &&
      !try_write(aside, nullptr, out.payload, bytes, written))
    return {true, false, bytes};
  if (written < bytes) aside.queue.push_payload(wire, out.payload, written, out.token, out.urgency);
  note_backlog();
  return {true, written < bytes, bytes};
}

// Connections that share a wire share it evenly: what is urgent has it to itself while there is some.
bool TcpLink::gives_way(const Stream& stream) const {
  return has_express() && &stream != &streams_.back() && !streams_.back().queue.empty();
}

// The express first, and the others when it has nothing left.
void TcpLink::write_all() {
  for (std::size_t i = streams_.size(); i-- > 0;)
    if (!streams_[i].queue.empty() && !gives_way(streams_[i])) write_queue(streams_[i]);
}

void TcpLink::flush_held() {
  if (!held_.load(std::memory_order_acquire)) return;
  std::lock_guard lock(lock_);
  if (held_.exchange(false)) write_all();
  note_backlog();
}

void TcpLink::write_queue(Stream& stream) {
  const std::size_t before = stream.queue.bytes();
  const auto written = stream.queue.write(stream.socket, completed_);
  keep_pace(stream, before - stream.queue.bytes());
  if (!completed_.empty()) has_completed_.store(true, std::memory_order_release);
  if (written != FrameQueue::Written::failed) return;
  stream.queue.clear();
  write_failed_.store(true, std::memory_order_release);
}

// What a small or urgent message of another group waits for at most: the frame that is half out, and what
// the kernel has. On a connection that was slow for a while both are made as small as its speed allows; a
// fast one is through with them in no time, and bounds would only cost it wake-ups.
void TcpLink::keep_pace(Stream& stream, std::size_t written) {
  if (stream.pace.is_at_rest() && stream.queue.empty()) return;
  if (!stream.pace.note(written, !stream.queue.empty(), clock_.now())) return;
  const std::size_t in_kernel = std::max(stream.pace.bytes_in(kInKernel), kLeastSendBuffer);
  if (stream.slow_windows < kSlowWindows) {
    stream.slow_windows = in_kernel <= kMostSendBuffer ? stream.slow_windows + 1 : 0;
    if (stream.slow_windows < kSlowWindows) return;
  }
  frame_now_.store(std::clamp(stream.pace.bytes_in(kPerFrame), std::min(kLeastFrame, frame_bytes_),
                              frame_bytes_),
                   std::memory_order_relaxed);
  bound_unsent(stream.socket.get(), in_kernel / 2);
  // Three times that: what a peer confirms waits in its own queue as long, and somebody has to wake up.
  if (shortest_round_trip(stream.socket.get()) <= kNearby)
    set_send_buffer(stream.socket.get(), std::clamp(stream.pace.bytes_in(3 * kInKernel),
                                                    kLeastSendBuffer, kMostSendBuffer));
}

void TcpLink::note_backlog() {
  backlog_.store(queued_bytes() > 0 && !held_.load(std::memory_order_relaxed),
                 std::memory_order_relaxed);
}

// True if a socket took anything.
bool TcpLink::write_queued() {
  std::lock_guard lock(lock_);
  const std::size_t before = queued_bytes();
  if (before == 0) return false;
  held_.store(false, std::memory_order_relaxed);
  write_all();
  note_backlog();
  return queued_bytes() != before;
}

bool TcpLink::flush() {
  write_queued();
  if (given_up_.load(std::memory_order_relaxed)) return true;
  std::lock_guard lock(lock_);
  return queued_bytes() == 0;
}

bool TcpLink::has_arrived() {
  if (down_.load(std::memory_order_relaxed) || given_up_.load(std::memory_order_relaxed) ||
      is_cut())
    return true;
  return std::all_of(streams_.begin(), streams_.end(), [](const Stream& stream) {
    return unacknowledged_bytes(stream.socket.get()) == 0;
  });
}

// ---- polling

bool TcpLink::ready() const {
  if (down_.load(std::memory_order_relaxed) || given_up_.load(std::memory_order_relaxed))
    return false;
  if (some_ended_) return true;  // the others' time may be up
  for (const Stream& stream : streams_)
    if (stream.readable || stream.writable) return true;
  return held_.load(std::memory_order_acquire) || has_completed_.load(std::memory_order_acquire) ||
         write_failed_.load(std::memory_order_acquire);
}

void TcpLink::suppose_readable() {
  const bool all = has_urgent_.load(std::memory_order_relaxed);
  for (std::size_t i = 0; i < (all ? streams_.size() : plain_streams_); ++i)
    streams_[i].readable = true;
}

bool TcpLink::poll(MessageSink& sink) {
  if (down_.load(std::memory_order_relaxed) || given_up_.load(std::memory_order_relaxed))
    return false;
  bool room = held_.load(std::memory_order_acquire);
  for (Stream& stream : streams_) room |= std::exchange(stream.writable, false);
  // Room counts as something that happened: whoever was refused may be about to sleep over it.
  bool happened = room && write_queued();
  happened |= complete(sink);
  happened |= receive(sink);
  if (!end_seen_) look_at_end();
  return happened;
}

bool TcpLink::complete(MessageSink& sink) {
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

bool TcpLink::receive(MessageSink& sink) {
  const bool failed = write_failed_.load(std::memory_order_acquire);
  bool happened = false;
  // The last one first: it is the express, or as good as any.
  for (std::size_t i = streams_.size(); i-- > 0;) {
    Stream& stream = streams_[i];
    if (down_.load(std::memory_order_relaxed)) return true;
    if ((stream.readable || failed) && !stream.ended) happened |= receive(i, sink);
  }
  if (!failed && !some_ended_) return happened;
  return judge_end(failed, sink) || happened;
}

bool TcpLink::receive(std::size_t index, MessageSink& sink) {
  Stream& stream = streams_[index];
  const bool is_express = index == plain_streams_;
  FrameReader& reader = is_express ? express_ : reader_;
  const FrameReader::End end = reader.read(is_express ? 0 : index, stream.socket, sink);
  stream.rests.store(end == FrameReader::End::waiting, std::memory_order_relaxed);
  switch (end) {
    case FrameReader::End::more: return true;
    case FrameReader::End::drained: stream.readable = stream.ending; return true;
    case FrameReader::End::nothing: stream.readable = false; return false;
    case FrameReader::End::waiting: return false;
    case FrameReader::End::closed:
      stream.ended = true;
      if (!std::exchange(some_ended_, true)) ended_at_ = clock_.now();
      return true;
    case FrameReader::End::failed:
      // Under TLS: what came is not what was sent.
      go_down(sink, errno == EBADMSG ? Code::corrupt : Code::peer_lost, std::strerror(errno));
      return true;
    case FrameReader::End::corrupt:
      go_down(sink, Code::corrupt, fmt::format("it sent {}", reader.flaw()));
      return true;
  }
  return true;
}

// A stream has ended, or takes nothing any more. A peer that leaves in good order closes all of
// them, and what it sent on one may come after the end of another: the link is over when the first
// stream has ended and nothing is owed, when something is owed by a stream that has ended, or when
// one has ended and the first does not follow.
bool TcpLink::judge_end(bool failed, MessageSink& sink) {
  const bool no_headers = streams_.front().ended;
  bool owed = false;
  bool broken = false;
  bool more = false;  // to read, that can still be of use
  for (std::size_t i = 0; i < streams_.size(); ++i) {
    const Stream& stream = streams_[i];
    // What lies on another stream before its header has come is of none when no header will come.
    const bool in_vain = i > 0 && stream.rests.load(std::memory_order_relaxed) && no_headers;
    more |= stream.readable && !stream.ended && !in_vain;
    // Of the express nobody knows what is still to come until it has ended.
    if (i == plain_streams_) owed |= !stream.ended;
    if (i == 0 || i == plain_streams_ || !reader_.expects(i)) continue;
    (stream.ended ? broken : owed) = true;
  }
  if (failed && more && !broken) return false;
  const bool late = some_ended_ && clock_.now() - ended_at_ > kGrace;
  const bool over = no_headers ? !owed || late : late;
  if (!failed && !broken && !over) return false;
  go_down(sink, Code::peer_lost,
          some_ended_ ? "it closed its connection" : "it does not take any more data");
  return true;
}

void TcpLink::go_down(MessageSink& sink, Code code, const std::string& why) {
  const bool misunderstood = code == Code::corrupt;
  const char* verb = misunderstood ? "cannot be understood" : "is gone";
  const Status status(code, fmt::format("rank {} ({}) {}: {}", peer_, whereabouts_, verb, why),
                      {self_, peer_, 0});
  // A peer that cannot be understood still reads: its groups hear the reason before the link closes.
  if (misunderstood) {
    sink.on_down(peer_, status);
    write_queued();
  }
  down_.store(true, std::memory_order_release);
  {
    std::lock_guard lock(lock_);
    for (Stream& stream : streams_) {
      ::shutdown(stream.socket.get(), SHUT_RDWR);
      stream.queue.clear();
    }
    completed_.clear();
    held_ = backlog_ = false;
  }
  if (!misunderstood) sink.on_down(peer_, status);
}

// ---- signs of life

// What lies here because nobody polls is a sign of life like any other, and what the kernel does not
// take now it will send by itself, as soon as the peer reads: then no beat is needed.
void TcpLink::beat() {
  if (down_.load(std::memory_order_acquire)) return;
  write_queued();
  {
    std::lock_guard lock(lock_);
    if (queued_bytes() > 0) return;
  }
  (void)send(header_for(MessageKind::bell, 0, 0), nullptr, 0, 0);
}

// Asked of the kernel: bytes have come, whether or not anybody has read them. While something lies
// unread the peer may find its window full, and cannot be blamed for its silence.
bool TcpLink::heard() {
  bool heard = false;
  for (Stream& stream : streams_) {
    const auto received = bytes_received(stream.socket.get());
    if (!received || std::exchange(stream.received, *received) != *received) heard = true;
    if (!stream.rests.load(std::memory_order_relaxed) && unread_bytes(stream.socket.get()) > 0)
      heard = true;
  }
  return heard;
}

void TcpLink::give_up(MessageSink& sink, const Status& why) {
  if (down_.load(std::memory_order_relaxed) || given_up_.exchange(true)) return;
  sink.on_down(peer_, why);
}

bool TcpLink::is_cut() const { return is_hung_up(streams_.front().socket.get()); }

void TcpLink::forget(std::uint32_t channel) {
  reader_.forget(channel);
  express_.forget(channel);
  std::lock_guard lock(lock_);
  for (Stream& stream : streams_) stream.queue.forget(channel);
  std::erase_if(completed_, [channel](const Completion& done) { return done.channel == channel; });
}

}  // namespace tutti::transport
