// Message runs of several ranks in one thread over links that are plain queues: no engine, no threads,
// no clock. A link takes odd pieces, and lends or copies.
#pragma once

#include <cstring>
#include <deque>
#include <map>
#include <memory>
#include <random>
#include <vector>

#include "engine/message_run.hpp"
#include "schedule/catalog.hpp"

namespace tutti::engine::testing {

class MessageWorld;

class QueueLink final : public transport::Link {
 public:
  QueueLink(MessageWorld& world, int self, int peer) : world_(world), self_(self), peer_(peer) {}
  std::string_view name() const override { return "queue"; }
  std::size_t eager_bytes() const override { return 64; }
  transport::Sent send(const transport::Header& header, const void* payload, std::size_t bytes,
                       std::uint64_t token) override;
  void release(std::uint64_t lease) override;
  bool revoked(std::uint64_t) const override { return false; }
  bool poll(transport::MessageSink&) override { return false; }
  void forget(std::uint32_t) override {}
  transport::MemoryRef share(const void*, std::size_t) const override { return {}; }
  std::byte* reach(const transport::MemoryRef& ref, std::size_t bytes) const override;

 private:
  MessageWorld& world_;
  int self_;
  int peer_;
};

struct Message {
  int from = 0;
  transport::Header header;
  std::vector<std::byte> copy;
  const std::byte* lent = nullptr;
  std::uint64_t token = 0;
  bool placed = false;  // as tcp does: before those that came earlier were looked at
};

class MessageWorld {
 public:
  // One launch per rank.
  MessageWorld(std::vector<Compiled> programs, std::vector<Launch> launches, std::uint64_t seed)
      : launches_(std::move(launches)), random_(seed) {
    for (std::size_t r = 0; r < launches_.size(); ++r) {
      groups_.push_back(std::make_unique<View>(*this, static_cast<int>(r)));
      runs_.push_back(std::make_unique<MessageRun>(*groups_[r], std::move(programs[r]), 64));
    }
    inboxes_.resize(launches_.size());
    for (std::size_t r = 0; r < launches_.size(); ++r) runs_[r]->begin(launches_[r], 1);
  }

  // Steps everybody until all are done; false when they stop before that.
  bool run() {
    for (int quiet = 0; quiet < 50;) {  // a link may say no several times in a row
      bool moved = false;
      bool done = true;
      for (std::size_t r = 0; r < runs_.size(); ++r) {
        moved |= deliver(r);
        moved |= runs_[r]->step();
        done &= runs_[r]->done();
      }
      if (done) return status_.ok();
      quiet = moved ? 0 : quiet + 1;
    }
    return false;
  }

  int placed() const { return placed_; }
  Status status() const { return status_; }

 private:
  friend class QueueLink;

  class View final : public GroupView {
   public:
    View(MessageWorld& world, int self) {
      for (std::size_t peer = 0; peer < world.launches_.size(); ++peer)
        links_.push_back(std::make_unique<QueueLink>(world, self, static_cast<int>(peer)));
    }
    transport::Link& link_to(int peer) override { return *links_[static_cast<std::size_t>(peer)]; }
    bool has_arrived(int) const override { return true; }
    bool all_have_arrived() const override { return true; }
    std::uint32_t channel() const override { return 1; }

   private:
    std::vector<std::unique_ptr<QueueLink>> links_;
  };

  bool deliver(std::size_t rank) {
    auto& inbox = inboxes_[rank];
    if (inbox.empty()) return false;
    Message message = std::move(inbox.front());
    inbox.pop_front();
    transport::Payload payload;
    payload.placed = message.placed;
    if (message.placed) {
      ++placed_;
    } else if (message.lent != nullptr) {
      payload.data = message.lent;
      payload.lease = message.token;
    } else if (message.copy.size() > transport::kInlineBytes) {
      payload.lease = ++leases_;
      payload.data = (kept_[payload.lease] = std::move(message.copy)).data();
    } else {
      payload.data = message.copy.data();
    }
    runs_[rank]->deliver(message.from, message.header, Segment::keep(message.header, payload));
    if (!runs_[rank]->failure().ok()) status_ = runs_[rank]->failure();
    return true;
  }

  std::vector<Launch> launches_;
  std::mt19937_64 random_;
  std::vector<std::unique_ptr<MessageRun>> runs_;
  std::vector<std::unique_ptr<View>> groups_;
  std::vector<std::deque<Message>> inboxes_;
  std::map<std::uint64_t, std::vector<std::byte>> kept_;
  std::uint64_t leases_ = 0;
  int placed_ = 0;
  Status status_;
};

inline transport::Sent QueueLink::send(const transport::Header& header, const void* payload,
                                       std::size_t bytes, std::uint64_t token) {
  if (world_.random_() % 4 == 0) return {};  // no room just now
  if (bytes > 64 && world_.random_() % 2 == 0) bytes = 64;
  Message message;
  message.from = self_;
  message.header = header;
  message.header.bytes = bytes;
  const auto* data = static_cast<const std::byte*>(payload);
  const bool lend = bytes > 128;
  if (lend) {
    message.lent = data;
    message.token = token;
  } else if (bytes > 0) {
    message.copy.assign(data, data + bytes);
    MessageRun& receiver = *world_.runs_[static_cast<std::size_t>(peer_)];
    std::byte* place = world_.random_() % 2 == 0 ? receiver.place(self_, message.header) : nullptr;
    if (place != nullptr) std::memcpy(place, data, bytes);
    message.placed = place != nullptr;
  }
  world_.inboxes_[static_cast<std::size_t>(peer_)].push_back(std::move(message));
  return {true, lend, bytes};
}

inline void QueueLink::release(std::uint64_t lease) {
  if (world_.kept_.erase(lease) == 0)  // a loan: the lease is the sender's counter
    reinterpret_cast<std::atomic<std::uint32_t>*>(lease)->fetch_sub(1);
}

inline std::byte* QueueLink::reach(const transport::MemoryRef& ref, std::size_t) const {
  const Launch& theirs = world_.launches_[static_cast<std::size_t>(peer_)];
  return ref.region == 1 && theirs.output.size() == 1 ? theirs.output[0].data + ref.offset
                                                      : nullptr;
}

}  // namespace tutti::engine::testing
