#include "transport/late_links.hpp"

#include <algorithm>
#include <mutex>
#include <utility>

#include "transport/overlay.hpp"

namespace tutti::transport {
namespace {

// Ranks that end together need no new links.
constexpr Nanoseconds kRepairAfter = std::chrono::seconds(1);

}  // namespace

LateLinks::LateLinks(Party party, Doors doors, std::size_t places, LinkedEndpoint& endpoint,
                     const Log& log)
    : party_(std::move(party)),
      doors_(std::move(doors)),
      endpoint_(endpoint),
      beside_(static_cast<std::size_t>(party_.size())),
      joining_(party_, doors_, endpoint, places, log) {
  for (int peer = 0; peer < party_.size(); ++peer) {
    if (peer == party_.rank) continue;
    const auto routes = party_.routes(peer);
    beside_[static_cast<std::size_t>(peer)] = !routes.empty() && routes.front()->shares_memory();
  }
}

void LateLinks::want(int peer) {
  {
    std::lock_guard lock(wants_lock_);
    wants_.push_back(peer);
  }
  has_wants_.store(true, std::memory_order_release);
}

LazyLink::Promise LateLinks::promise(int peer) const {
  const Transport* transport = party_.routes(peer).front();
  return {transport->name(), transport->shares_memory(), transport->eager_bytes()};
}

void LateLinks::replace(int peer, bool at_once) {
  absent_.insert(peer);
  const Nanoseconds now = steady_clock().now();
  repair_at_ = std::min(repair_at_, at_once ? now : now + kRepairAfter);
  due_.store(std::min(due_.load(), repair_at_.count()));
}

void LateLinks::repair() {
  repair_at_ = Nanoseconds::max();
  const auto is_absent = [&](int peer) { return absent_.count(peer) != 0; };
  for (const int peer : overlay_neighbours(party_.rank, party_.size(), is_absent))
    if (!endpoint_.is_linked(peer)) joining_.want(peer, true);
}

bool LateLinks::is_due() const {
  if (joining_.is_ready() || has_wants_.load(std::memory_order_acquire)) return true;
  return due() != Nanoseconds::max() && steady_clock().now() >= due();
}

std::vector<Joining::Loss> LateLinks::attend() {
  if (has_wants_.exchange(false)) {
    std::vector<int> wants;
    {
      std::lock_guard lock(wants_lock_);
      wants.swap(wants_);
    }
    for (const int peer : wants) joining_.want(peer);
  }
  if (steady_clock().now() >= repair_at_) repair();
  auto losses = joining_.attend();
  for (const auto& loss : losses)
    if (loss.quiet) replace(loss.peer, true);
  due_.store(std::min(joining_.due(), repair_at_).count());
  return losses;
}

}  // namespace tutti::transport
