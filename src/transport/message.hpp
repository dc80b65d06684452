// transport/message.hpp - the header that every message carries, on every kind of link.
// docs/formats/wire.md has the layout byte by byte.
#pragma once

#include <cstdint>
#include <string_view>

namespace tutti::transport {

enum class MessageKind : std::uint8_t {
  arrive,   // "I have started collective `sequence`"; payload: the call's fingerprint
  data,     // a segment of a collective's message (sequence, step)
  eager,    // point to point: a whole small message
  request,  // point to point: a large message wants to be sent
  ready,    // point to point: its receive is there, send
  bulk,     // point to point: a segment of a large message
  credit,   // point to point: eager messages were taken
  query,    // "what are you doing?" …
  report,   // … the answer
  abort,    // a group has failed; payload: the status
  goodbye,  // this rank leaves a group in good order
  bell,     // internal to links (acknowledgements, heartbeats); never reaches the sink
  meet,     // members of a list are about to make a group; payload: what each calls for
  view,     // whom a survivor of a failed group misses; payload: its opinion
  device,   // memory of a GPU that ranks of one host show each other; payload: a note about it
  news,  // of a group that failed, or a rank that is gone; goes round to all ranks; payload: the status
};
std::string_view to_string(MessageKind kind) noexcept;

// Those that wake a rank which is busy with its own work; the rest can wait until it looks.
constexpr bool is_urgent(MessageKind kind) noexcept {
  return kind == MessageKind::query || kind == MessageKind::report || kind == MessageKind::abort ||
         kind == MessageKind::goodbye || kind == MessageKind::view || kind == MessageKind::device ||
         kind == MessageKind::news;
}

enum HeaderFlags : std::uint8_t {
  kCancel = 2,    // request: the sender has given up this message
  kRefuse = 4,    // ready: the receive buffer is too small, do not send
  kHold = 16,     // the link may keep it until the next message or flush_held; not on the wire
  kInternal = 8,  // eager, request: the library's own message, never matched with a user's receive
  kOffered =
      1,        // request: the receiver may take it out of the sender's device memory; payload: how
  kTaken = 64,  // ready: it has, nothing is to be sent
};

struct Header {
  std::uint32_t channel = 0;  // which group
  MessageKind kind = MessageKind::data;
  std::uint8_t flags = 0;
  std::uint16_t spare = 0;     // tcp: the connection on which the payload comes; else 0
  std::uint64_t sequence = 0;  // the collective's number, or that of a point-to-point message
  std::uint32_t step = 0;
  std::uint32_t tag = 0;
  std::uint64_t offset = 0;  // of this segment in its message, bytes
  std::uint64_t bytes = 0;   // payload of this segment
  std::uint64_t extra = 0;   // total bytes of a point-to-point message, among others
};
static_assert(sizeof(Header) == 48);

inline Header header_for(MessageKind kind, std::uint32_t channel, std::uint64_t sequence) {
  Header header;
  header.kind = kind;
  header.channel = channel;
  header.sequence = sequence;
  return header;
}

// The largest payload that a control message (everything but data, eager and bulk) may have.
inline constexpr std::uint64_t kMaxControlBytes = 4096;

// What is wrong with a header that came from a peer, in words that follow "it sent …"; null: nothing.
// Looks at what every link shares: the kind, the flags that this kind may have, its length (of data,
// eager and bulk at most `most_bytes`), its place. Streams, leases and memory are the link's to check.
const char* flaw_in(const Header& header, std::uint64_t most_bytes) noexcept;

}  // namespace tutti::transport
