// engine/point_to_point.hpp - matching of sends with receives, one unit per group.
//
// Messages match per (source, tag) in the order they were sent. Small ones go *eagerly*, as far as
// the pair's credits reach, and are kept by the receiver if nobody waits for them: that memory is
// bounded. Larger ones ask first (request), and move when their receive is there (ready, bulk…). A
// request that times out is taken back (kCancel), so that it never meets a later receive.
//
//   sender                 receiver
//   eager  ─────────────▶  matched now or kept; every few of them: ◀── credit
//   request ────────────▶  matched now or kept
//          ◀──────  ready
//   bulk, bulk, … ──────▶
//
// A transfer that comes after other works (CallOptions::after) takes its place at once and waits there:
// those behind it with the same peer, or source, and the same tag wait too.
//
// Device memory is sent and received through pinned host memory. Between ranks of one host a request
// offers it instead: a receiver that can map it takes it from there, and says so (ready, kTaken); one
// that cannot has it sent.
//
// Thread-safety  none: used by whoever holds the group's baton.
#pragma once

#include <atomic>
#include <deque>
#include <list>
#include <map>
#include <memory>
#include <optional>
#include <vector>

#include "core/clock.hpp"
#include "engine/dependencies.hpp"
#include "engine/device_end.hpp"
#include "engine/group_view.hpp"
#include "engine/segments.hpp"
#include "engine/work_state.hpp"
#include "tutti/status.hpp"

namespace tutti::engine {

// Several transfers that complete as one work.
struct Batch {
  std::shared_ptr<WorkState> work;
  std::shared_ptr<Dependencies>
      after;             // what its transfers wait for before they begin; null: nothing
  bool counted = false;  // for the progress thread
  std::size_t open = 0;
  Status status;
  Received received;
  // Of one on device memory.
  std::shared_ptr<GateKeeper> gate;
  cuda::DeviceTraffic::Flight flight;

  // It is over: whoever waits on the device goes on.
  void open_gate() {
    if (gate) gate->open();
    flight = {};
  }
};

// A posted send or receive.
struct Posting {
  bool is_send = true;
  std::byte* data = nullptr;
  std::size_t bytes = 0;
  int peer = 0;  // group rank; -1: any source
  std::uint32_t tag = 0;
  bool internal = false;
  Nanoseconds timeout{0};
  Nanoseconds deadline = Nanoseconds::max();
  std::shared_ptr<Batch> batch = nullptr;
  std::shared_ptr<DeviceEnd> device = nullptr;  // null: `data` is host memory

  static Posting send(int peer, std::uint32_t tag, const void* data, std::size_t bytes) {
    return {true, static_cast<std::byte*>(const_cast<void*>(data)), bytes, peer, tag};
  }
  static Posting recv(int peer, std::uint32_t tag, void* data, std::size_t bytes) {
    return {false, static_cast<std::byte*>(data), bytes, peer, tag};
  }
};

class PointToPoint {
 public:
  PointToPoint(GroupView& group, int rank, int size, std::string group_name);

  // Where there is no memory to keep it in, `posting` stays what it was.
  void post(Posting&& posting);
  // A message from a peer. One that the protocol above does not allow is refused: Code::corrupt.
  Status deliver(int peer, const transport::Header& header, Segment segment);
  bool step(Nanoseconds now);
  // Sends and receives that are not done.
  std::size_t open() const { return sends_.size() + posted_.size() + active_.size(); }
  // Ends everything with `status`. The links have forgotten the channel before. Nothing is done where
  // there is no memory for it.
  void abandon(const Status& status);
  // The same for those that were not posted yet.
  void refuse(std::vector<Posting>& postings, const Status& status);
  // A deadline passed while bytes were moving: the group cannot go on.
  Status failure() const { return failure_; }
  // Whether something from or for this peer is still missing.
  bool waits_for(int peer) const;
  // The next deadline of anything posted.
  Nanoseconds next_deadline() const;
  // Whether the device has to be asked now and then how far it is.
  bool asks_device() const { return on_device_ > 0; }
  // Whether one of them waits for the device alone: its stream, or a copy that was begun.
  bool waits_for_device() const;
  // Batches that have ended, for the group to complete once it has put the baton down.
  std::vector<std::shared_ptr<Batch>>& ended() { return ended_; }

 private:
  // fetching: out of device memory, because the receiver cannot take it from there.
  enum class State : std::uint8_t { fresh, requested, fetching, streaming };
  struct Sending {
    Posting posting;
    std::uint64_t id = 0;  // 0: nothing of it has left
    State state = State::fresh;
    std::size_t issued = 0;
    std::atomic<std::uint32_t> in_flight{0};
    // On device memory.
    bool fetches = false;               // a copy to the host was begun,
    bool prepared = false;              //   and is there, or is not needed:
    std::optional<DeviceNote> offered;  //   the receiver is to take it
  };
  // moving: segment by segment; taking: out of the sender's device memory; storing: into our own.
  enum class Way : std::uint8_t { moving, taking, storing };
  struct Receiving {
    Posting posting;
    std::size_t total = 0;
    std::size_t done = 0;
    bool tainted = false;
    SegmentQueue queue;
    Way way = Way::moving;
    bool copies = false;  // what the device has to do was begun
    DeviceNote offered{};
  };
  // A message that came before its receive. An eager one is kept here: what its link lent goes back
  // at once, because links have little room and other groups need it.
  struct Unexpected {
    int peer = 0;
    transport::Header header;
    Segment segment;
    std::vector<std::byte> kept;
    Sending* local = nullptr;  // a send to this rank itself
    std::optional<DeviceNote> offered = std::nullopt;
  };
  using Key = std::pair<int, std::uint64_t>;  // (peer, message id)

  bool start(Sending& sending);
  bool prepare(Sending& sending);
  bool fetch(Sending& sending);
  bool begin_copy(Receiving& receiving, const Key& key);
  bool receive_on_device(const Key& key, Receiving& receiving);
  void land(const Key& key, Posting posting, std::size_t bytes, std::uint32_t tag);
  void answer(int peer, std::uint64_t id, std::uint8_t flags);
  static std::byte* host_memory(const Posting& posting) {
    return posting.device ? posting.device->pinned() : posting.data;
  }
  bool start_eagerly(Sending& sending, transport::Header header);
  bool stream(Sending& sending);
  bool receive(const Key& key, Receiving& receiving);
  static bool waits(const Posting& posting) {
    return posting.batch && posting.batch->after && !posting.batch->after->all_clear();
  }
  bool admit();
  void look_for_failed_works(const Posting& posting);
  // Of those posted, the one that a message is for; end: none, or admit() is to say.
  std::list<Posting>::iterator receive_for(int peer, const transport::Header& header);
  std::list<Unexpected>::iterator first_for(std::list<Posting>::iterator posting);
  void match(Posting posting, Unexpected message);
  void accept(Posting posting, const Unexpected& message);
  void take_eager(const Posting& posting, Unexpected& message);
  const char* flaw_in(int peer, const transport::Header& header) const;
  const char* flaw_in_new(int peer, const transport::Header& header) const;
  const char* flaw_in_ready(int peer, const transport::Header& header) const;
  void deliver_request(int peer, const transport::Header& header, const Segment& segment);
  void deliver_eager(int peer, const transport::Header& header, Segment segment);
  void deliver_bulk(int peer, const transport::Header& header, const Segment& segment);
  void cancel(int peer, std::uint64_t id);
  void on_ready(const transport::Header& header);
  bool expire(Nanoseconds now);
  void finish(const Posting& posting, const Status& status, const Received& received = {});
  void give_credit(int peer);
  Status too_small(const Posting& posting, int peer, std::size_t bytes) const;
  Status expired(const Posting& posting) const;
  static bool matches(const Posting& posting, int peer, const transport::Header& header);

  GroupView& group_;
  int rank_;
  std::string group_name_;
  std::uint64_t next_id_ = 1;
  std::list<Sending> sends_;          // in posting order
  std::list<Posting> posted_;         // receives without a message, in posting order
  std::list<Unexpected> unexpected_;  // messages without a receive, in arrival order
  std::map<Key, Receiving> active_;
  std::vector<int> credits_;  // eager messages that each peer will still keep for us
  std::vector<int> owed_;     // eager messages taken and not yet credited back
  std::vector<int> kept_;     // eager messages that came and were not credited back, per peer
  std::vector<std::uint64_t> last_id_;  // of the newest message of each peer
  std::vector<std::shared_ptr<Batch>> ended_;
  // Some transfers wait, or did at the last look: messages meet their receives in admit() alone, so that
  // none gets ahead of another.
  bool some_wait_ = false;
  int on_device_ = 0;  // postings on device memory that are open
  Status failure_;
};

}  // namespace tutti::engine
