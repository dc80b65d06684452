// transport/ofi/fabric_port.hpp - what all ofi links of one rank share: the rails, memory that is registered with
// them, and the loop over their completions.
//
// Progress is manual: nothing moves unless somebody polls. One of the links drives the fabric for all.
//
// Thread-safety  take_…, release_…, post_…, region_of by any thread; the rest by whoever polls, or before the
//                first poll.
#pragma once

#include <array>
#include <atomic>
#include <deque>
#include <list>
#include <map>
#include <memory>
#include <shared_mutex>
#include <string>
#include <unordered_map>
#include <vector>

#include "core/log.hpp"
#include "core/spin_lock.hpp"
#include "transport/link.hpp"
#include "transport/ofi/enrolled.hpp"
#include "transport/ofi/frame.hpp"

namespace tutti::transport::ofi {

class OfiLink;

// Something that a rail was told to do, until it says that it is done.
struct RailTask {
  enum class Kind : std::uint8_t { receive, send, write };
  fi_context2 context{};  // first: completions name it
  Kind kind = Kind::send;
  int peer = -1;               // of sends and writes
  std::size_t rail = 0;        // of receives
  Place frame;                 // of receives and sends
  std::size_t bytes = 0;       // of sends
  std::uint32_t transfer = 0;  // of writes
  MappedKey key;               // of writes, where keys are no numbers
};

class FabricPort {
 public:
  // `ranks` of the job; `landing_bytes`: the largest payload that moves at once; `tells`: as in Rail::open.
  static Result<std::shared_ptr<FabricPort>> open(const Provider& provider, int ranks,
                                                  std::size_t landing_bytes, bool tells);
  ~FabricPort();

  std::size_t rails() const { return rails_.size(); }
  Result<std::vector<std::string>> addresses() const;
  std::size_t landing_bytes() const { return landings_.slot_bytes(); }

  // A link comes, with its peer's addresses, and goes. True of one of them, which is to poll for all.
  Status join(OfiLink& link, int peer, const std::vector<std::string>& addresses);
  void leave(int peer);
  bool is_driven_by(int peer) const { return peer == driver_; }

  // What has completed: tells the links. True if anything happened.
  bool poll(MessageSink& sink);
  // Lets the provider go on with what it has to do, and takes nothing from it. Any thread.
  void nudge();
  // Descriptors that are readable when it has; and how long one may sleep over them.
  std::vector<int> descriptors() const;
  Nanoseconds longest_nap(bool idle);

  // A frame to fill; null: no memory. It is given back by the completion of its send.
  RailTask* take_frame();
  Posted post(RailTask& frame, Status& why);
  Posted post_write(int peer, std::uint32_t transfer, std::size_t rail, const Grant& grant,
                    const Place& from, std::size_t offset, std::size_t bytes, Status& why);
  // Room for a large payload, registered.
  Place take_landing() { return landings_.take(); }
  void release_landing(std::uint64_t slot) { landings_.release(slot); }

  // Writes that peers were granted: each word stands for `pieces` of them, then the link is told `what`.
  std::uint32_t expect(int peer, std::uint32_t pieces, void* what);

  // Symmetric memory of this rank: `file` holds what it maps. It is mapped once more, so that what is still on
  // its way when it goes or becomes private finds the memory that it was meant for.
  void add_region(std::uint64_t id, std::byte* data, std::size_t bytes, int file);
  void drop_region(std::uint64_t id);
  // Empty: the memory is in none.
  Place region_of(const void* data, std::size_t bytes) const;

 private:
  struct Peer {
    OfiLink* link = nullptr;
    std::array<fi_addr_t, kMostRails> address{};  // by rail
  };
  struct Landing {
    int peer = -1;
    std::uint32_t pieces = 0;
    void* what = nullptr;
  };
  struct SharedRegion {
    std::byte* data = nullptr;
    std::shared_ptr<Enrolled> memory;
  };

  FabricPort(Rails rails, int ranks, std::size_t landing_bytes);
  Status post_receives(int ranks);
  bool post_receive(RailTask& receive);
  RailTask* take_operation(RailTask::Kind kind);
  void release_operation(RailTask& operation);
  void dispatch(Rail& rail, const fi_cq_data_entry& entry, MessageSink& sink);
  void on_frame(RailTask& receive, std::size_t bytes, MessageSink& sink);
  void on_write_landed(std::uint32_t word, MessageSink& sink);
  void on_failed(const Rail::Failed& failed);

  Rails rails_;  // first: it goes last
  SlotPool frames_;
  SlotPool landings_;
  std::vector<Peer> peers_;  // by rank
  int driver_ = -1;
  std::unordered_map<std::uint32_t, Landing> expected_;
  std::uint32_t next_word_;
  std::vector<RailTask*> unposted_;  // receives that found no room

  SpinLock lock_;  // the next two
  std::deque<RailTask> operations_;
  std::vector<RailTask*> free_operations_;

  mutable std::shared_mutex regions_mutex_;
  std::map<std::uint64_t, SharedRegion> regions_;
  std::atomic<bool> has_regions_{false};
};

}  // namespace tutti::transport::ofi
