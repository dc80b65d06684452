// transport/late_links.hpp - the links of a rank that are made at their first use, and the few that are
// always there (overlay.hpp): what the endpoint has in such a world besides links.
//
// Thread-safety  want, promise and is_beside by any thread; the rest by whoever polls.
#pragma once

#include <atomic>
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <vector>

#include "core/spin_lock.hpp"
#include "transport/joining.hpp"
#include "transport/lazy_link.hpp"

namespace tutti::transport {

class LateLinks {
 public:
  LateLinks(Party party, Doors doors, std::size_t places, LinkedEndpoint& endpoint, const Log& log);

  // While ranks join.
  Joining& joining() { return joining_; }
  // From then on.
  Status stay(Reactor& reactor) { return joining_.stay(reactor); }

  void want(int peer);
  LazyLink::Promise promise(int peer) const;
  // Whether the peer is on this host, so that a link shares memory.
  bool is_beside(int peer) const { return beside_[static_cast<std::size_t>(peer)]; }
  // A link of the overlay is gone: another takes its place, at once or, where its rank left in good order
  // and all may be about to, in a while.
  void replace(int peer, bool at_once);
  void doubt(int peer, const Status& why) { joining_.doubt(peer, why); }

  // Whether attend has something to do.
  bool is_due() const;
  // When it will have, at the latest; any thread.
  Nanoseconds due() const { return Nanoseconds(due_.load(std::memory_order_relaxed)); }
  std::vector<Joining::Loss> attend();
  void abandon() noexcept { joining_.abandon(); }

 private:
  void repair();

  Party party_;
  Doors doors_;
  LinkedEndpoint& endpoint_;
  std::vector<bool> beside_;  // by rank
  Joining joining_;
  SpinLock wants_lock_;
  std::vector<int> wants_;  // asked for, and not passed on yet
  std::atomic<bool> has_wants_{false};
  std::atomic<std::int64_t> due_{Nanoseconds::max().count()};
  std::set<int> absent_;  // ranks that no link of the overlay leads to
  Nanoseconds repair_at_ = Nanoseconds::max();
};

}  // namespace tutti::transport
