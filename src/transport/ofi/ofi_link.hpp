// transport/ofi/ofi_link.hpp - a message link over a fabric.
//
// Small messages are frames: sealed, copied into registered memory, sent, and received into buffers that wait for
// them. A large payload is announced; the receiver grants it a place, and the sender writes it there (RMA), a piece
// by every rail. Each write carries a word, and the receiver counts them: nothing is assumed of their order.
//
// In symmetric memory such a payload is not copied on either side: it is written from there, and to there. Other
// memory goes through landings, memory of the library's own that is registered once: it may be freed at any
// time after `forget`, and a write that is under way cannot be called back.
//
// Who is to live or die is told by the connection over which the two have met (tether.hpp).
#pragma once

#include <sys/uio.h>

#include <atomic>
#include <deque>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "core/clock.hpp"
#include "core/siphash.hpp"
#include "core/spin_lock.hpp"
#include "transport/message_link.hpp"
#include "transport/ofi/fabric_port.hpp"
#include "transport/ofi/incoming_table.hpp"
#include "transport/ofi/outbox.hpp"
#include "transport/ofi/tether.hpp"
#include "transport/urgencies.hpp"

namespace tutti::transport::ofi {

// What the two have agreed on when they met.
struct LinkTerms {
  SipKey send_key;
  SipKey receive_key;
  std::size_t landing_bytes = 0;       // the largest payload that moves at once
  std::vector<std::string> addresses;  // of the peer, by rail
};

class OfiLink final : public MessageLink {
 public:
  struct Ends {
    int self = 0;
    int peer = 0;
    std::string whereabouts;  // of the peer
    LinkTerms agreement;
  };
  static Result<std::unique_ptr<OfiLink>> create(std::shared_ptr<FabricPort> fabric, Ends ends,
                                                 ByteStream connection, Nanoseconds dead_after);
  ~OfiLink() override;

  std::string_view name() const override { return "ofi"; }
  std::size_t eager_bytes() const override;
  Sent send(const Header& header, const void* payload, std::size_t bytes,
            std::uint64_t token) override;
  void flush_held() override;
  void set_urgency(std::uint32_t channel, Urgency urgency) override;
  void release(std::uint64_t lease) override { inbox_.release(lease); }
  bool poll(MessageSink& sink) override;
  void forget(std::uint32_t channel) override;
  void beat() override;
  bool heard() override { return tether_.heard(); }
  void give_up(MessageSink& sink, const Status& why) override;
  bool is_cut() const override { return tether_.is_cut(); }

  // The fabric is polled whether or not anything is ready; the tether when the reactor says so.
  std::size_t sockets() const override { return 0; }
  Status watch(Reactor& reactor) override;
  bool ready() const override;
  void suppose_readable() override {}
  bool wants_room() const override { return false; }
  Nanoseconds longest_nap(bool idle) override;
  bool flush() override;
  bool has_arrived() override;
  void abandon() noexcept override { tether_.close(); }
  bool wants_regions() const override { return true; }
  void add_region(std::uint64_t id, const MemoryRegion& region, int file) override;
  void drop_region(std::uint64_t id) override { fabric_->drop_region(id); }
  FabricPort& fabric() { return *fabric_; }

  // The fabric's calls, inside its poll: a frame of ours has gone; a write has; a frame for us has come; all
  // writes of a payload have; something failed.
  void on_frame_out();
  void on_written(std::uint32_t transfer);
  void on_frame(const FrameHeader& frame, const std::byte* payload, MessageSink& sink);
  void on_landed(void* what, MessageSink& sink) { inbox_.land(what, sink); }
  void on_broken(const Status& why);

 private:
  // A large payload that was announced, until it is written.
  struct Transfer {
    Outgoing message;
    std::uint32_t number = 0;
    std::uint32_t pieces = 0;
    std::uint32_t posted = 0;
    std::uint32_t written = 0;
    bool granted = false;
    Grant grant;
  };

  // One that is complete before another that was sent earlier.
  struct EarlyFrame {
    FrameHeader header;
    std::string payload;
  };

  OfiLink(std::shared_ptr<FabricPort> fabric, Ends ends, ByteStream connection,
          Nanoseconds dead_after);
  Sent send_large(Outgoing message, const void* payload, bool may_lend);
  bool may_post() const;
  bool prepare(FrameKind kind, const Header& header, std::span<const iovec> payload);
  bool prepare_message(const Header& header, const void* payload, std::size_t bytes);
  void push(Outgoing message);
  bool prepare_next();
  bool post_prepared();
  void pump();
  void post_writes(Transfer& transfer);
  bool is_all_out();
  void take_announcement(const FrameHeader& frame, const std::byte* payload, MessageSink& sink);
  void take(const FrameHeader& frame, const std::byte* payload, MessageSink& sink);
  void keep_early(const FrameHeader& frame, const std::byte* payload);
  void take_grant(const std::byte* payload, std::size_t bytes);
  const char* flaw_of(const FrameHeader& frame, const std::byte* payload) const;
  std::size_t rails() const { return ends_.agreement.addresses.size(); }
  bool complete(MessageSink& sink);
  bool judge_end(MessageSink& sink);
  bool confirm_end();
  void go_down(MessageSink& sink, Code code, const std::string& why);

  std::shared_ptr<FabricPort> fabric_;
  Ends ends_;
  IncomingTable inbox_;  // poll only, like the next five
  Tether tether_;
  std::uint64_t received_ = 0;  // frames, without a gap
  std::map<std::uint64_t, EarlyFrame> early_;
  Nanoseconds quiet_since_{0};  // nothing has come of late, and nothing more is to be expected
  const char* flaw_ = nullptr;  // what was wrong with a frame
  Nanoseconds leaving_since_{0};
  bool said_end_ = false;
  std::vector<std::unique_ptr<EventSource>> rail_events_;
  Status broken_;

  SpinLock lock_;  // of the following
  Urgencies urgencies_;
  Outbox outbox_;
  std::optional<Outgoing> held_;     // with kHold: the next one takes it along
  std::deque<Grant> grants_;         // to be sent
  RailTask* prepared_ = nullptr;     // a frame with its number, that found no room yet
  std::uint64_t sent_ = 0;           // frames
  int in_flight_ = 0;                // frames
  std::size_t large_in_flight_ = 0;  // bytes of announced payloads
  std::map<std::uint32_t, Transfer> transfers_;
  std::uint32_t next_transfer_ = 0;
  struct Completion {
    std::uint32_t channel = 0;
    std::uint64_t token = 0;
  };
  std::vector<Completion> completed_;

  std::atomic<bool> has_work_{false};  // something waits for room, or to be told
  std::atomic<bool> down_{false};
  std::atomic<bool> given_up_{false};
};

}  // namespace tutti::transport::ofi
