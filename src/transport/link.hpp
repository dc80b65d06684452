// transport/link.hpp - the way from this rank to one other rank.
//
// A link carries the messages of a channel in order: what was sent first arrives first. It is shared
// by all groups that contain both ranks; messages of a more urgent one pass those of others, and of one
// as urgent a small message may pass large ones.
// Memory links (inproc, shm) hand the receiver a view of the sender's memory instead of moving
// bytes; message links (tcp) move them.
//
// Buffers        a payload that was *lent* stays the link's until Sink::on_sent; one that was not
//                has been copied when send returns. A received view stays valid until `release`.
// Thread-safety  send, release and reach may be called by any thread at any time. poll and forget
//                only by whoever holds the endpoint's poll lock (engine's concern).
// Failure        a link that broke delivers what had come, then reports Sink::on_down once; sends
//                on it are accepted and dropped, and no on_sent follows for what was lent.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>

#include "transport/doorbell.hpp"
#include "transport/message.hpp"
#include "tutti/status.hpp"
#include "tutti/types.hpp"

namespace tutti::transport {

// Where memory is, in words that the peer understands. region 0: it cannot reach it.
struct MemoryRef {
  std::uint64_t region = 0;
  std::uint64_t offset = 0;
};

// An incoming payload. Three cases:
//   placed      the bytes are where Sink::place said
//   lease != 0  `data` is readable until Link::release(lease)
//   otherwise   `data` is readable during on_message only (it is small: at most kInlineBytes)
struct Payload {
  const std::byte* data = nullptr;
  std::uint64_t lease = 0;
  bool placed = false;
};
inline constexpr std::size_t kInlineBytes = 72;

// The engine's side. All calls come from inside Link::poll, so from one thread at a time.
class MessageSink {
 public:
  virtual ~MessageSink() = default;
  // A message link asks where `header.bytes` bytes should go; null: it keeps them in memory of its
  // own and hands out a lease. Asked for data and bulk only. The place must stay valid until
  // on_message, or until Link::forget(channel).
  virtual std::byte* place(int peer, const Header& header) = 0;
  virtual void on_message(int peer, const Header& header, const Payload& payload) = 0;
  // The payload lent with this token may be reused.
  virtual void on_sent(std::uint64_t token) = 0;
  virtual void on_down(int peer, const Status& reason) = 0;
  // A link that was made at its first use is there. What was sent by it until now is on its way.
  virtual void on_up(int /*peer*/) {}
  // A peer has given no sign of life for so long that it is to be given up in a moment.
  virtual void on_suspicion(int /*peer*/) {}
};

struct Sent {
  bool accepted = false;  // false: no room now; try again after a poll
  bool lent = false;      // on_sent(token) will follow
  std::size_t bytes = 0;  // how much of the payload went along; the rest is to be sent with a
                          // later offset (segments of data and bulk only)
};

class Link {
 public:
  virtual ~Link() = default;
  // Of its transport: "shm", "tcp" …; for people. What a link can do is asked by the next.
  virtual std::string_view name() const = 0;
  // Whether the two ranks can map each other's memory: they are on one host, messages are views,
  // polling costs no system call.
  virtual bool shares_memory() const { return false; }

  // The link will be used, if only by the peer: one that is made at its first use is made now. Any thread.
  virtual void open() {}

  // Data of at most this many bytes may be sent before the peer has arrived: it can be kept there.
  virtual std::size_t eager_bytes() const = 0;

  // Sends `header` with the first bytes of `payload`; the link writes header.bytes itself. Messages
  // that are not data or bulk go whole or not at all. Wakes the peer if it sleeps. Never blocks.
  // Control messages (kMaxControlBytes) are always accepted: the link queues them if need be.
  // Only data and bulk are ever lent; everything else has been copied when send returns.
  virtual Sent send(const Header& header, const void* payload, std::size_t bytes,
                    std::uint64_t token) = 0;
  // Sends what kHold has kept back. Any thread.
  virtual void flush_held() {}
  // Gives a view back. A view that is held keeps nobody else's messages from passing.
  virtual void release(std::uint64_t lease) = 0;
  // Whether the view's owner has taken it back (forget): ask AFTER reading, before believing what
  // was read. The view must be released all the same. Message links own their views: never.
  virtual bool revoked(std::uint64_t) const { return false; }

  // How urgent a channel's messages are from now on; normal, unless something else was said. Any thread.
  virtual void set_urgency(std::uint32_t /*channel*/, Urgency) {}

  // Delivers what has come, within reason. True if anything happened.
  virtual bool poll(MessageSink& sink) = 0;
  // After this returns the link touches no memory lent or placed for `channel` any more, and
  // on_sent will not be called for it. Messages of that channel still arrive, with what was in
  // them: the peer may not know of the failure yet, and takes them for good.
  virtual void forget(std::uint32_t channel) = 0;

  // Signs of life (pulse.hpp), by the pulse thread alone. `beat` gives one to the peer; `heard` says
  // whether the peer has given one since it was asked last, or may have: a link that cannot tell says
  // yes.
  virtual void beat() {}
  virtual bool heard() { return true; }
  // Inside a poll: the peer does not show that it lives. Reports on_down and delivers nothing more, but
  // control messages still go out: a peer that wakes up shall read why it was given up.
  virtual void give_up(MessageSink&, const Status&) {}
  // Whether the other end is gone, as far as descriptors tell without being read. By whoever polls.
  virtual bool is_cut() const { return false; }

  // How the peer could reach this rank's memory, and where the peer's memory is mapped here (null:
  // it is not). Message links know neither.
  virtual MemoryRef share(const void*, std::size_t) const { return {}; }
  virtual std::byte* reach(const MemoryRef&, std::size_t) const { return nullptr; }

  // Wakes the peer if it sleeps over work, after something was published in memory that both have
  // mapped. The publishing store must be sequentially consistent. Message links have no such
  // memory.
  virtual void rouse() {}
  // By which its peer tells whether it sleeps, so that most who publish need not call rouse at all.
  // Null: this link never rouses anybody.
  virtual const Doorbell* doorbell() const { return nullptr; }
  // The peer's process as it names itself, where its memory might be read by the kernel's help;
  // 0: it cannot. Only a try can tell whether the number means the same process here.
  virtual std::int64_t process() const { return 0; }
};

}  // namespace tutti::transport
