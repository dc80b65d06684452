// transport/endpoint.hpp - all links of one rank, and how it sleeps until one of them has
// something.
//
// Made in two steps, because addresses have to travel in between (by the store, which this room
// does not know): `Opening::open` makes this rank reachable and gives its address as a byte string;
// `connect` takes everybody's and links up, by trying: same process → inproc, memory that can be
// mapped → shm, else tcp (transport.hpp). The higher rank of a pair connects, the lower accepts.
//
// Thread-safety  poll, forget, allocate_region and free_region by one thread at a time (the holder
//                of the engine's poll lock). sleep by one thread at a time too, but it may run
//                BESIDE a poll in another thread: it only waits (and empties the bell), poll
//                dispatches. wake, link, region_has_come, label and whereabouts by any thread.
#pragma once

#include <chrono>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "core/clock.hpp"
#include "core/log.hpp"
#include "core/secret.hpp"
#include "transport/link.hpp"
#include "tutti/config.hpp"

namespace tutti::transport {

// Symmetric memory of this rank: mapped here, and by every peer that `share_region` named.
struct MemoryRegion {
  std::uint64_t id = 0;
  std::byte* data = nullptr;
  std::size_t bytes = 0;
};

// A stretch of this rank's memory that peers have mapped, in their words and here. region 0: there is none.
struct SharedStretch {
  MemoryRef ref;
  const std::byte* data = nullptr;
  std::size_t bytes = 0;
};

class Transport;

class Endpoint {
 public:
  virtual ~Endpoint() = default;

  virtual int rank() const = 0;
  virtual int size() const = 0;
  // Null for this rank itself. Where links are made at their first use (is_lazy) it may not be there yet.
  virtual Link* link(int peer) = 0;
  virtual bool is_lazy() const { return false; }
  // Whether the peer's link is there, and can be used now.
  virtual bool is_linked(int peer) { return link(peer) != nullptr; }
  // Whether the two ranks share memory, or would if they were linked.
  virtual bool is_beside(int peer) {
    const Link* with = link(peer);
    return with != nullptr && with->shares_memory();
  }
  // All that are linked.
  virtual std::vector<int> linked() {
    std::vector<int> peers;
    for (int peer = 0; peer < size(); ++peer)
      if (is_linked(peer)) peers.push_back(peer);
    return peers;
  }
  // Others say that a peer without a link is gone, or silent: it is asked; on_down comes if it does not
  // answer, on_up if it does. From inside a poll, like the next.
  virtual void doubt(int /*peer*/, const Status& /*why*/) {}
  virtual void suspect(int /*peer*/) {}
  // A peer is about to leave in good order: others take its place among the links that are always there.
  virtual void on_farewell(int /*peer*/) {}

  // Polls every link once. True if anything happened.
  virtual bool poll(MessageSink& sink) = 0;

  // Arms the doorbell, looks once more (`again` polls and says whether there is work), and sleeps
  // until a peer rings, a socket is ready, wake() is called, or `timeout` passes. `idle`: only
  // urgent messages of memory links ring.
  virtual void sleep(Nanoseconds timeout, bool idle, const std::function<bool()>& again) = 0;
  virtual void wake() = 0;

  // Symmetric memory. `allocate_region` makes and zeroes one and hands it to the peers named (those
  // on memory links; others are passed over); `id` is the same on all ranks of the group.
  // `region_has_come` says whether the peer's region `id` has arrived here; poll makes it come true.
  // Link::reach then finds it, unless this process could not map it.
  // `free_region` unmaps this rank's own and drops the mappings of the peers' regions of that id.
  virtual Result<MemoryRegion> allocate_region(std::uint64_t id, std::size_t bytes,
                                               const std::vector<int>& peers) = 0;
  virtual bool region_has_come(int peer, std::uint64_t id) const = 0;
  virtual void free_region(std::uint64_t id) = 0;
  // Makes this rank's own region private, contents and all: what peers in other processes still write
  // there is not seen here. False: there was no memory for it.
  virtual bool unshare_region(std::uint64_t) { return true; }
  // What all of `peers` have mapped of this rank's memory all around `data`. The answer, and that of
  // Link::reach, is good until `regions_version` changes. Any thread.
  virtual SharedStretch find_region(const void*, std::size_t, std::span<const int>) const {
    return {};
  }
  virtual std::uint64_t regions_version() const { return 0; }

  // The shared heap of this process (tutti/shared_heap.hpp), if it has one, as a region that is handed to those
  // of the peers that are linked and do not have it yet: under kHeapRegion it comes and is reached like others.
  // False: there is none.
  virtual bool share_heap(const std::vector<int>&) { return false; }
  virtual bool heap_is_mapped_by(std::span<const int>) const { return false; }
  // What lies in the heap is taken out of the reach of peers in other processes: what they still write there
  // is not seen here. Any thread.
  virtual void withdraw(const void*, std::size_t) {}

  // Whether a peer is gone that seemed so at the look before, asked without reading anything: for those
  // who wait for the ranks elsewhere and do not poll. Not beside a poll. A rank that gives up because of
  // another closes its links a moment before it says why, and is not the one to be named.
  virtual Status look_for_the_gone() { return {}; }
  // How long this process itself has stood still, if that was for longer than `peer` waits for a sign of
  // life (Config::dead_after) and not long ago, and the peer gave none itself since; else 0. Any thread.
  virtual Nanoseconds standstill(int /*peer*/) const { return Nanoseconds(0); }
  // Every rank has joined: whoever gives no sign of life from now on is silent, also one that never
  // gave any.
  virtual void all_have_joined() {}

  // "host a, pid 4182", for messages; of any rank. What the program calls it stands before:
  // "dp 1, tp 0; host a, pid 4182".
  virtual std::string whereabouts(int rank) const = 0;
  virtual void label(int /*rank*/, std::string /*label*/) {}
};

struct OpeningOptions {
  int rank = 0;
  int size = 1;
  std::uint64_t epoch = 0;  // of the job: ranks of another one are turned away
  Secret secret;
  Config config;
  Log log;
  std::vector<const Transport*> transports;  // to choose from, the best first; empty: built in
};

class Opening {
 public:
  virtual ~Opening() = default;
  static Result<std::unique_ptr<Opening>> open(OpeningOptions options);

  virtual std::string address() const = 0;
  // Asked now and then while ranks link up: a failure ends it.
  using Watch = std::function<Status()>;
  // `addresses[r]` is rank r's. Blocks until all links are there; the error names those that are
  // not.
  virtual Result<std::unique_ptr<Endpoint>> connect(const std::vector<std::string>& addresses,
                                                    std::chrono::nanoseconds timeout,
                                                    const Watch& watch = {}) = 0;
};

}  // namespace tutti::transport
