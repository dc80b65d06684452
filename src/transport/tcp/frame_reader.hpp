// transport/tcp/frame_reader.hpp - frames from the sockets of one peer to the sink, in order.
//
// Small frames are taken out of a staging buffer, many per system call; large payloads are read
// straight to where Sink::place wants them.
//
//   stream 0   [header|payload] [header ┄┄] [header|payload] …   the order of messages is its order
//   stream 1                      [payload]                      a header's `spare` says: there
//
// With several streams, frames behind a payload of their channel that is still under way wait for it, and
// no others do; their number is bounded, then stream 0 rests.
//
// Thread-safety  one thread at a time: whoever polls.
#pragma once

#include <array>
#include <cstddef>
#include <deque>
#include <list>
#include <memory>
#include <optional>
#include <vector>

#include "core/byte_stream.hpp"
#include "transport/buffer_pool.hpp"
#include "transport/link.hpp"
#include "transport/tcp/socket_end.hpp"
#include "transport/tcp/wire_header.hpp"

namespace tutti::transport {

// The largest payload of one frame. Senders stay within their segment size, which may differ by
// rank.
inline constexpr std::uint64_t kMaxFrameBytes = std::uint64_t{64} << 20;

class FrameReader {
 public:
  enum class End : std::uint8_t {
    nothing,  // had come
    drained,  // something had; there was no more a moment ago
    more,     // enough for one poll; there may be more
    waiting,  // nothing was done: another stream has to bring something first
    closed,   // the peer has closed
    failed,   // errno says why
    corrupt,  // flaw() says what was wrong
  };
  // `checked`: frames carry checksums, and one that does not fit its own is corrupt.
  FrameReader(int peer, BufferPool& pool, std::size_t streams = 1, bool checked = false);

  End read(ByteStreamRef socket, MessageSink& sink) { return read(0, socket, sink); }
  End read(std::size_t stream, ByteStreamRef socket, MessageSink& sink);
  // Whether something is known to come on the stream. Stream 0 always has something to say.
  bool expects(std::size_t stream) const { return stream == 0 || !asides_[stream].empty(); }
  // Moves payloads that are being placed for `channel` into memory of our own.
  void forget(std::uint32_t channel);
  // Which end of the connection the peer has said that it is; nothing: it has said nothing yet.
  const std::optional<SocketEnd>& peer_end() const { return peer_end_; }
  // "a message with flags that its kind does not have"; null: nothing was wrong so far.
  const char* flaw() const { return flaw_; }

 private:
  // A large payload on its way in.
  struct Landing {
    Header header;
    std::byte* target = nullptr;
    std::uint64_t lease = 0;  // 0: placed
    std::size_t got = 0;
    bool checked = false;
    std::uint32_t expected = 0;  // checksum of all of it
    std::uint32_t check = 0;     // of what is here
    bool whole() const { return got == header.bytes; }
  };
  // A frame that has to wait for one before it, or whose payload comes on another stream.
  struct Waiting {
    Landing landing;
    bool small = false;  // at most kInlineBytes, in `inline_bytes`
    bool here = false;
    std::array<std::byte, kInlineBytes> inline_bytes;
  };

  std::size_t staged() const { return end_ - begin_; }
  End read_frames(ByteStreamRef socket, MessageSink& sink);
  End read_aside(std::size_t stream, ByteStreamRef socket, MessageSink& sink);
  bool parse_staged(MessageSink& sink);
  bool parse(MessageSink& sink);
  bool parse_small(MessageSink& sink);
  const char* find_flaw();
  void take(Landing& landing, std::size_t bytes);
  bool is_intact(const Landing& landing);
  Landing start(const Header& header, MessageSink& sink);
  void finish(const Landing& landing, MessageSink& sink);
  void deliver(const Landing& landing, MessageSink& sink);
  void deliver_waiting(MessageSink& sink);
  bool must_wait(std::uint32_t channel) const;
  void move_away(Landing& landing, std::uint32_t channel);
  ssize_t fill(ByteStreamRef socket, std::size_t& asked);

  int peer_;
  bool checked_;
  BufferPool& pool_;
  std::unique_ptr<std::byte[]> staging_;
  std::size_t begin_ = 0;
  std::size_t end_ = 0;

  bool has_header_ = false;
  bool payload_checked_ = false;  // of the frame under way
  const char* flaw_ = nullptr;
  std::optional<SocketEnd> peer_end_;
  bool bulky_ = false;    // the last frame was a large one: the next will be, too
  bool landing_ = false;  // a large payload of stream 0 is under way
  WireHeader wire_;
  Header& header_ = wire_.header;
  Landing current_;

  std::list<Waiting> waiting_;                // in order; an element stays where it is
  std::vector<std::deque<Waiting*>> asides_;  // per stream: payloads in the order they come
};

}  // namespace tutti::transport
