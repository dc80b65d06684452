// transport/tcp/tcp_link.hpp - a message link over one to nine authenticated TCP connections.
//
// Frames are a Header and its payload (docs/formats/wire.md). A send tries the socket at once; what
// it does not take is queued: copied up to 16 KiB, lent above. The queue is bounded; control
// messages are few and pass the bound. A message with kHold waits for the next one to the same
// peer, or for flush_held: both leave in one system call.
//
// Messages of a group that is more urgent than others go ahead of theirs in the queue, and so do small ones
// of a group that is as urgent; little is kept where they could not (keep_pace). Urgent groups have a
// connection to themselves, the *express*: nothing that the kernels hold of others is before them.
//
// With several connections besides, every header leaves on the first, which keeps the order; large payloads
// take whichever connection has least to do. One connection that breaks ends the link.
#pragma once

#include <atomic>
#include <deque>
#include <string>
#include <vector>

#include "core/clock.hpp"
#include "core/sockets.hpp"
#include "core/spin_lock.hpp"
#include "transport/buffer_pool.hpp"
#include "transport/message_link.hpp"
#include "transport/tcp/frame_queue.hpp"
#include "transport/tcp/frame_reader.hpp"
#include "transport/tcp/pace.hpp"
#include "transport/urgencies.hpp"

namespace tutti::transport {

// The most connections of one pair of ranks, the express aside.
inline constexpr int kMaxStreams = 8;

class TcpLink final : public MessageLink {
 public:
  // `sockets` are connected, authenticated and non-blocking, in an order that both sides share.
  // `checked`: both sides put checksums into their frames and look at them. `dead_after`: what the
  // kernel's own timers have to agree with; 0: never. `has_express`: the last of them is the express.
  TcpLink(int self, int peer, std::vector<ByteStream> sockets, std::size_t segment_bytes,
          std::string whereabouts, bool checked = true,
          Nanoseconds dead_after = std::chrono::seconds(10), const Clock& clock = steady_clock(),
          bool has_express = false);
  ~TcpLink() override;

  // What may be sent before the peer has arrived: a quarter of a millisecond at 2 Gbit/s, and little
  // enough to be kept there once per peer.
  static constexpr std::size_t kEagerBytes = 64 * 1024;

  std::string_view name() const override { return "tcp"; }
  std::size_t eager_bytes() const override;
  Sent send(const Header& header, const void* payload, std::size_t bytes,
            std::uint64_t token) override;
  void flush_held() override;
  void set_urgency(std::uint32_t channel, Urgency urgency) override;
  void release(std::uint64_t lease) override { pool_.release(lease); }
  bool poll(MessageSink& sink) override;
  void forget(std::uint32_t channel) override;
  void beat() override;
  bool heard() override;
  void give_up(MessageSink& sink, const Status& why) override;
  bool is_cut() const override;

  // The express is read when it says so, unless there are urgent groups.
  std::size_t sockets() const override { return plain_streams_; }
  Status watch(Reactor& reactor) override;
  bool ready() const override;
  // Who was given up is not waited for.
  bool wants_room() const override {
    return backlog_.load(std::memory_order_relaxed) && !given_up_.load(std::memory_order_relaxed);
  }
  void suppose_readable() override;
  bool flush() override;
  bool has_arrived() override;
  void abandon() noexcept override;

 private:
  // One connection. `on_ready` only notes; poll acts.
  struct Stream final : EventSource {
    explicit Stream(ByteStream connected) : socket(std::move(connected)) {}
    void on_ready(std::uint32_t events) override;

    ByteStream socket;
    bool readable = true;  // poll and sleep only, like the next two
    bool writable = false;
    bool ending = false;  // the end of the stream is near: only a read of nothing is its end
    bool ended = false;
    // What lies unread does so because something else has to come first, not because nobody polls.
    std::atomic<bool> rests{false};
    std::uint64_t received = 0;  // bytes, when the pulse looked last
    FrameQueue queue;            // under the link's lock, like the next two
    SendPace pace;
    int slow_windows = 0;  // in a row; at kSlowWindows the bounds of keep_pace hold for good
  };

  // What travels with a frame on its way out.
  struct Outgoing {
    const void* payload = nullptr;
    std::uint64_t token = 0;
    bool lend = false;
    Urgency urgency = Urgency::normal;
  };
  Stream& stream_for(Urgency urgency) {
    return urgency == Urgency::urgent && has_express() ? streams_.back() : streams_.front();
  }
  bool has_express() const { return streams_.size() > plain_streams_; }
  Sent send_whole(Stream& stream, const Header& header, const Outgoing& out);
  Sent send_apart(Header header, const Outgoing& out, std::size_t stream);
  std::size_t least_busy() const;
  // Of frames that are at least so urgent.
  std::size_t queued_bytes(Urgency least = Urgency::bulk) const;
  WireHeader seal(const Header& header, const void* payload, bool on_express = false) const;
  void tell_end();
  void look_at_end();
  bool try_write(Stream& stream, const WireHeader* header, const void* payload, std::size_t bytes,
                 std::size_t& written);
  void write_queue(Stream& stream);
  bool gives_way(const Stream& stream) const;
  void write_all();
  void keep_pace(Stream& stream, std::size_t written);
  void note_backlog();
  bool write_queued();
  bool complete(MessageSink& sink);
  bool receive(MessageSink& sink);
  bool receive(std::size_t index, MessageSink& sink);
  bool judge_end(bool failed, MessageSink& sink);
  void go_down(MessageSink& sink, Code code, const std::string& why);

  const Clock& clock_;
  int self_;
  int peer_;
  bool checked_;
  // The connection ends in this kernel, without anybody between: its payloads need no checksums.
  std::atomic<bool> direct_{false};
  bool end_seen_ = false;  // poll only
  std::size_t
      frame_bytes_;  // up to two segments, if they are there: fewer calls for the same bytes
  std::atomic<std::size_t> frame_now_;  // what one carries now, at most that
  std::string whereabouts_;
  BufferPool pool_;
  FrameReader reader_;   // poll only, like the next three
  FrameReader express_;  // of what comes by that
  bool some_ended_ = false;
  Nanoseconds ended_at_{0};
  std::atomic<bool> given_up_{false};

  mutable SpinLock lock_;  // the queues and the next three
  Urgencies urgencies_;
  std::deque<Stream> streams_;
  std::vector<Completion> completed_;

  const std::size_t plain_streams_;      // of streams_, the first; one more is the express
  std::atomic<bool> has_urgent_{false};  // groups, that is
  std::atomic<bool> held_{false};        // nothing is queued but what was sent with kHold
  std::atomic<bool> backlog_{false};     // something is queued that the socket did not take
  std::atomic<bool> has_completed_{false};
  std::atomic<bool> write_failed_{false};
  std::atomic<bool> down_{false};
};

}  // namespace tutti::transport
