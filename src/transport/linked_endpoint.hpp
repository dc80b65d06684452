// transport/linked_endpoint.hpp - the endpoint over memory links and message links, as joining made
// them.
#pragma once

#include <atomic>
#include <deque>
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <string>
#include <vector>

#include "core/process_hooks.hpp"
#include "transport/endpoint.hpp"
#include "transport/lazy_link.hpp"
#include "transport/memory_link.hpp"
#include "transport/message_link.hpp"
#include "transport/pulse.hpp"
#include "transport/reactor.hpp"
#include "transport/shm/lifeline.hpp"

namespace tutti::transport {

class LateLinks;

class LinkedEndpoint final : public Endpoint {
 public:
  struct Parts {
    int rank = 0;
    int size = 1;
    std::shared_ptr<Window> window;
    std::vector<std::string> whereabouts;  // by rank; may be empty
    Log log;
    Visibility* visibility = nullptr;
  };
  static Result<std::unique_ptr<LinkedEndpoint>> create(Parts parts);
  ~LinkedEndpoint() override;

  // The transports' calls, before the first poll, or inside one (Transport::links_late). Each peer gets a memory link or a message link;
  // what is this rank's in `ends` is filled in here.
  MemoryLink& add_memory(MemoryLink::Ends ends);
  // Of a memory link to another process: tells of its end, and carries symmetric memory.
  Status add_lifeline(std::unique_ptr<Lifeline> lifeline);
  Status add_message(int peer, std::unique_ptr<MessageLink> link);

  // When the last link is there: this rank shows that it lives, and gives up those who do not for
  // `dead_after`; 0: nobody.
  Status start_pulse(Nanoseconds dead_after);
  // Links to others are made at their first use. Before start_pulse.
  Status keep_open(std::unique_ptr<LateLinks> late);

  int rank() const override { return parts_.rank; }
  int size() const override { return parts_.size; }
  Link* link(int peer) override {
    Link* found = links_[static_cast<std::size_t>(peer)].load(std::memory_order_acquire);
    return found != nullptr || !late_ ? found : promise(peer);
  }
  bool is_lazy() const override { return late_ != nullptr; }
  bool is_linked(int peer) override;
  bool is_beside(int peer) override;
  std::vector<int> linked() override;
  void doubt(int peer, const Status& why) override;
  void suspect(int peer) override;
  void on_farewell(int peer) override;
  bool poll(MessageSink& sink) override;
  void sleep(Nanoseconds timeout, bool idle, const std::function<bool()>& again) override;
  void wake() override { parts_.window->ring(); }
  Result<MemoryRegion> allocate_region(std::uint64_t id, std::size_t bytes,
                                       const std::vector<int>& peers) override;
  bool region_has_come(int peer, std::uint64_t id) const override {
    return regions_.has_come(peer, id);
  }
  void free_region(std::uint64_t id) override;
  bool unshare_region(std::uint64_t id) override;
  SharedStretch find_region(const void* data, std::size_t bytes,
                            std::span<const int> peers) const override {
    return regions_.find(data, bytes, peers);
  }
  std::uint64_t regions_version() const override { return regions_.version(); }
  bool share_heap(const std::vector<int>& peers) override;
  bool heap_is_mapped_by(std::span<const int> peers) const override {
    return regions_.heap_is_mapped_by(peers);
  }
  void withdraw(const void* data, std::size_t bytes) override;
  Status look_for_the_gone() override;
  Nanoseconds standstill(int peer) const override;
  void all_have_joined() override;
  std::string whereabouts(int rank) const override;
  void label(int rank, std::string label) override;

 private:
  LinkedEndpoint(Parts parts, Reactor reactor);
  // A link that is there, and whom it leads to.
  struct Up {
    int peer = 0;
    Link* link = nullptr;
  };
  Link* promise(int peer);
  void come_up(int peer, std::unique_ptr<Link> link);
  bool attend_late(MessageSink& sink);
  void lose(int peer, const Status& why, MessageSink& sink);
  Nanoseconds until_due(Nanoseconds timeout) const;
  bool attend(Lifeline& lifeline);
  bool time_to_look();
  bool give_up_silent(MessageSink& sink);
  Status gone(int peer, const std::string& why) const;
  void set_doorbell(std::uint32_t state);
  void wait_for_news(Nanoseconds timeout);
  Nanoseconds longest_nap(bool idle) const;
  void say_goodbye();
  // In a fresh child of fork(): a descriptor kept there would hide this process's end from its
  // peers.
  static void on_fork(void* endpoint) noexcept;

  Parts parts_;
  Reactor reactor_;
  RegionTable regions_;
  std::vector<std::atomic<Link*>> links_;  // by rank
  std::vector<Up> up_;                     // like the next, the holder's of the poll lock
  std::deque<std::unique_ptr<Link>> owned_;
  std::mutex late_mutex_;  // of the next
  std::map<int, std::unique_ptr<LazyLink>> promised_;
  std::vector<int> came_up_;               // and nobody was told yet
  std::atomic<bool> has_messages_{false};  // links that carry them
  std::vector<MemoryLink*> memory_;
  std::vector<MessageLink*> message_;  // the holder's of the poll lock
  // Those of them that were made while ranks joined, which stay as they are: all that know symmetric memory, or
  // bound a nap (those made later are tcp's, and do neither).
  std::vector<MessageLink*> first_;
  std::size_t sockets_ = 0;  // of message_
  std::vector<std::unique_ptr<Lifeline>> lifelines_;
  std::set<int> have_heap_;  // peers that this process's heap was handed to
  std::uint32_t sleeps_ = 0;
  std::uint32_t polls_ = 0;
  std::atomic<bool> has_news_{true};  // the reactor has something: sleep saw it, poll is to look
  std::map<int, std::string> seemed_gone_;  // at the last look, and why
  Nanoseconds dead_after_{0};
  std::unique_ptr<Pulse> pulse_;
  std::unique_ptr<LateLinks> late_;  // null: all links are there
  mutable std::mutex labels_mutex_;
  std::map<int, std::string> labels_;  // what the program calls ranks
  ForkGuard fork_guard_;
  Hook fork_hook_;  // last: it goes first
};

}  // namespace tutti::transport
