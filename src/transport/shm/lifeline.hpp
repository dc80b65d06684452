// transport/shm/lifeline.hpp - the Unix socket between two processes that share memory.
//
// It carries the descriptors of symmetric memory, and its end is the peer's end. The peer's pidfd
// says the same, also when a child of the peer still holds the socket.
#pragma once

#include <deque>
#include <memory>
#include <optional>

#include "transport/memory_link.hpp"
#include "transport/reactor.hpp"

namespace tutti::transport {

// A memory file that is handed over to a peer, or that a peer has handed over: then empty if this
// process had no descriptor left to take it with.
struct RegionParcel {
  std::uint64_t id = 0;
  std::size_t bytes = 0;
  std::shared_ptr<const Descriptor> file;
};

class Lifeline final : public EventSource {
 public:
  Lifeline(int peer, MemoryLink& link, Descriptor socket, pid_t pid);

  int peer() const { return peer_; }
  MemoryLink& link() const { return link_; }
  Status watch(Reactor& reactor);
  void on_ready(std::uint32_t events) override;
  // Something happened since the last receive that found nothing.
  bool ready() const { return ready_; }

  // Hands a memory file over; what the socket does not take now goes with a later flush.
  void send(RegionParcel parcel);
  void flush();
  // The next one that has come; nothing: none left.
  std::optional<RegionParcel> receive();
  bool ended() const { return ended_; }
  // Whether the peer is gone, without reading anything.
  bool is_cut() const;
  // Closes the descriptors, in a child of fork().
  void abandon() noexcept {
    socket_.reset();
    process_.reset();
  }

 private:
  // One end of life for two descriptors: the pidfd becomes readable when the process is gone.
  struct ProcessWatch final : EventSource {
    explicit ProcessWatch(Lifeline& owner) : line(owner) {}
    void on_ready(std::uint32_t) override { line.ready_ = line.ended_ = true; }
    Lifeline& line;
  };

  int peer_;
  MemoryLink& link_;
  Descriptor socket_;
  Descriptor process_;
  ProcessWatch process_watch_{*this};
  std::deque<RegionParcel> outbox_;
  bool ready_ = true;
  bool ended_ = false;
};

}  // namespace tutti::transport
