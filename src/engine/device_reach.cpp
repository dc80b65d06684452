#include "engine/device_reach.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <thread>
#include <utility>

namespace tutti::engine {

using Word = DeviceNote::Word;

namespace {
// How often somebody who waits for peers to close a mapping looks.
constexpr auto kLookEvery = std::chrono::microseconds(100);
// For how long peers that did not answer are not waited for.
constexpr Nanoseconds kBusyFor = std::chrono::seconds(1);
constexpr std::uint64_t kBlock = 2 << 20;
// How often, and for how long, it is tried to map what lies where another world of this process has something
// open that its owner has freed: that world may be about to end.
constexpr Nanoseconds kMapEvery = std::chrono::milliseconds(1);
constexpr Nanoseconds kMapFor = std::chrono::seconds(2);
}  // namespace

DeviceReach::DeviceReach(std::shared_ptr<cuda::Device> device, transport::Endpoint& endpoint)
    : device_(std::move(device)),
      endpoint_(endpoint),
      same_process_(static_cast<std::size_t>(endpoint.size())) {}

// The world is over: nobody waits on the device any more.
DeviceReach::~DeviceReach() {
  for (const auto& [key, import] : imports_) device_->close_import(import.here);
}

void DeviceReach::introduce(int peer, bool same_process) {
  std::scoped_lock lock(mutex_);
  same_process_[static_cast<std::size_t>(peer)] = same_process;
}

// One that was freed, and made again at the same address, is another one.
DeviceReach::Shown* DeviceReach::find_shown(const cuda::Allocation& allocation) {
  auto at = shown_.find(allocation.base);
  if (at != shown_.end() && at->second.allocation.id == allocation.id) return &at->second;
  if (at != shown_.end()) {
    take_back(at->second);
    shown_.erase(at);
  }
  Shown shown;
  shown.allocation = allocation;
  shown.guests.resize(same_process_.size());
  if (auto handle = device_->export_allocation(allocation); handle.ok()) {
    shown.exportable = true;
    shown.handle = *handle;
  }
  return &shown_.emplace(allocation.base, std::move(shown)).first->second;
}

bool DeviceReach::all_in_process(std::span<const int> peers) const {
  return std::all_of(peers.begin(), peers.end(),
                     [&](int peer) { return same_process_[static_cast<std::size_t>(peer)]; });
}

DeviceReach::View DeviceReach::find(std::uint64_t address, std::span<const int> peers) {
  View view;
  const auto allocation = device_->allocation_of(address);
  if (!allocation.ok()) return view;
  view.allocation = *allocation;
  std::scoped_lock lock(mutex_);
  view.can_be_shown = all_in_process(peers) || find_shown(*allocation)->exportable;
  return view;
}

void DeviceReach::show(View& view, std::span<const int> peers, std::uint32_t channel) {
  std::scoped_lock lock(mutex_);
  view.sight = Sight::seen;
  view.bases.assign(peers.size(), view.allocation.base);
  if (all_in_process(peers)) return;
  Shown& shown = *find_shown(view.allocation);
  for (std::size_t p = 0; p < peers.size(); ++p) {
    const auto rank = static_cast<std::size_t>(peers[p]);
    if (same_process_[rank]) continue;
    Guest& guest = shown.guests[rank];
    if (!guest.shown) {
      guest = {Sight::coming, true, true, 0};
      send(peers[p], channel,
           {Word::show, view.allocation.id, view.allocation.base, view.allocation.bytes,
            shown.handle});
    }
    view.bases[p] = guest.base;
    view.sight = std::max(view.sight, guest.sight);
  }
}

void DeviceReach::take_back(Shown& shown) {
  for (std::size_t peer = 0; peer < shown.guests.size(); ++peer)
    if (shown.guests[peer].told) {
      ++shown.open;
      send(static_cast<int>(peer), last_channel_, {Word::gone, shown.allocation.id, 0, 0, {}});
    }
  if (shown.open > 0) gone_.emplace(shown.allocation.id, shown);
}

std::shared_ptr<cuda::Memory> DeviceReach::give_up(std::shared_ptr<cuda::Memory> memory) {
  std::scoped_lock lock(mutex_);
  const auto at = shown_.find(memory->address());
  if (memory->bytes() == 0 || at == shown_.end()) return memory;
  at->second.kept = std::move(memory);
  take_back(at->second);
  if (at->second.open == 0) memory = std::move(at->second.kept);
  shown_.erase(at);
  return memory;
}

std::vector<std::shared_ptr<cuda::Memory>> DeviceReach::take_closed() {
  std::scoped_lock lock(mutex_);
  return std::exchange(closed_, {});
}

void DeviceReach::forget(std::uint64_t base, Nanoseconds patience) {
  std::uint64_t id = 0;
  {
    std::scoped_lock lock(mutex_);
    const auto at = shown_.find(base);
    if (at == shown_.end()) return;
    id = at->second.allocation.id;
    take_back(at->second);
    shown_.erase(at);
  }
  const Nanoseconds last = steady_clock().now() + patience;
  // Whoever empties an allocator frees many: peers that are busy now were busy for the one before.
  if (steady_clock().now() < in_vain_until_.load()) return;
  while (steady_clock().now() < last) {
    {
      std::scoped_lock lock(mutex_);
      if (!gone_.contains(id)) return;
    }
    std::this_thread::sleep_for(kLookEvery);
  }
  in_vain_until_ = steady_clock().now() + kBusyFor;
}

void DeviceReach::send(int peer, std::uint32_t channel, const DeviceNote& note) {
  last_channel_ = channel;
  const auto header = transport::header_for(transport::MessageKind::device, channel, 0);
  if (transport::Link* link = endpoint_.link(peer)) (void)link->send(header, &note, sizeof note, 0);
}

void DeviceReach::on_note(int peer, std::uint32_t channel, const DeviceNote& note) {
  std::scoped_lock lock(mutex_);
  incoming_.push_back({peer, channel, note, {}, {}});
}

bool DeviceReach::has_to_close() const {
  std::scoped_lock lock(mutex_);
  return !closing_.empty();
}

Status DeviceReach::trouble() const {
  std::scoped_lock lock(mutex_);
  return trouble_;
}

bool DeviceReach::step(bool may_close) {
  std::vector<Incoming> incoming;
  std::vector<Incoming> closing;
  {
    std::scoped_lock lock(mutex_);
    incoming.swap(incoming_);
    if (may_close) closing.swap(closing_);
  }
  // First: what is new may lie where something lay that is still open here.
  for (const Incoming& each : closing) close(each);
  bool moved = !closing.empty();
  for (const Incoming& each : incoming) {
    switch (each.note.word) {
      case Word::show: moved |= map(each); break;
      case Word::seen:
      case Word::hidden:
      case Word::closed: note_answer(each), moved = true; break;
      case Word::offer: break;  // comes with a message only
      case Word::gone: {
        std::scoped_lock lock(mutex_);
        closing_.push_back(each);
        moved = true;
        break;
      }
    }
  }
  return moved;
}

void DeviceReach::close(const Incoming& gone) {
  std::uint64_t base = 0;
  {
    std::scoped_lock lock(mutex_);
    const auto at = imports_.find({gone.peer, gone.note.allocation});
    if (at != imports_.end()) base = at->second.here, imports_.erase(at);
  }
  if (base != 0) device_->close_import(base);
  std::scoped_lock lock(mutex_);
  send(gone.peer, gone.channel, {Word::closed, gone.note.allocation, 0, 0, {}});
}

bool DeviceReach::map(Incoming shown) {
  const Nanoseconds now = steady_clock().now();
  {
    std::scoped_lock lock(mutex_);
    if (is_in_the_way_of(shown) || now < shown.tried + kMapEvery) {
      incoming_.push_back(shown);
      return false;
    }
  }
  const auto base = import(shown.peer, shown.note);
  std::scoped_lock lock(mutex_);
  if (shown.first_tried.count() == 0) shown.first_tried = now;
  shown.tried = now;
  if (base.status().code() == Code::timed_out && now < shown.first_tried + kMapFor) {
    incoming_.push_back(shown);
    return false;
  }
  if (!base.ok()) trouble_ = base.status();
  send(
      shown.peer, shown.channel,
      {base.ok() ? Word::seen : Word::hidden, shown.note.allocation, base.ok() ? *base : 0, 0, {}});
  return true;
}

// The driver maps nothing that lies, at its owner, where something did that is still open here. It maps blocks, of which
// small allocations are parts.
bool DeviceReach::is_in_the_way_of(const Incoming& shown) const {
  const std::uint64_t first = shown.note.base / kBlock;
  const std::uint64_t last = (shown.note.base + shown.note.bytes) / kBlock;
  return std::any_of(closing_.begin(), closing_.end(), [&](const Incoming& gone) {
    const auto at = imports_.find({gone.peer, gone.note.allocation});
    return gone.peer == shown.peer && at != imports_.end() && at->second.first_block <= last &&
           first <= at->second.last_block;
  });
}

Result<std::uint64_t> DeviceReach::import(int peer, const DeviceNote& note) {
  const Key key{peer, note.allocation};
  {
    std::scoped_lock lock(mutex_);
    if (const auto at = imports_.find(key); at != imports_.end()) return at->second.here;
  }
  const auto base = device_->import_allocation(note.handle);
  if (!base.ok()) return base;
  std::scoped_lock lock(mutex_);
  imports_[key] = {*base, note.base / kBlock, (note.base + note.bytes) / kBlock};
  // An offer says how far into the allocation it is, not where that lies: it may be anywhere.
  if (note.word == Word::offer) imports_[key] = {*base, 0, ~std::uint64_t{0}};
  return base;
}

std::optional<DeviceNote> DeviceReach::offer(int peer, std::uint32_t channel,
                                             std::uint64_t address) {
  const auto allocation = device_->allocation_of(address);
  const auto at = static_cast<std::size_t>(peer);
  if (!allocation.ok()) return std::nullopt;
  DeviceNote note{Word::offer, allocation->id, address - allocation->base, allocation->bytes, {}};
  std::scoped_lock lock(mutex_);
  if (same_process_[at]) {
    note.base = address;
    return note;
  }
  Shown& shown = *find_shown(*allocation);
  if (!shown.exportable) return std::nullopt;
  note.handle = shown.handle;
  shown.guests[at].told = true;  // it is to hear when the memory goes
  last_channel_ = channel;
  return note;
}

Result<std::uint64_t> place_of(const DeviceNote& note, const cuda::Allocation& mapped,
                               std::size_t bytes) {
  if (note.base <= mapped.bytes && bytes <= mapped.bytes - note.base)
    return mapped.base + note.base;
  return Status(Code::corrupt,
                fmt::format("a peer offered {} bytes from {} on in an allocation of {}", bytes,
                            note.base, mapped.bytes));
}

// How large the memory is says the driver, not the peer.
Result<std::uint64_t> DeviceReach::accept(int peer, const DeviceNote& note, std::size_t bytes) {
  {
    std::scoped_lock lock(mutex_);
    if (same_process_[static_cast<std::size_t>(peer)]) return note.base;
  }
  const auto base = import(peer, note);
  if (!base.ok()) return base;
  const auto mapped = device_->allocation_of(*base);
  return mapped.ok() ? place_of(note, *mapped, bytes) : mapped.status();
}

void DeviceReach::note_answer(const Incoming& incoming) {
  std::scoped_lock lock(mutex_);
  const DeviceNote& note = incoming.note;
  if (note.word == Word::closed) {
    const auto at = gone_.find(note.allocation);
    if (at == gone_.end() || --at->second.open > 0) return;
    if (at->second.kept) closed_.push_back(std::move(at->second.kept));
    gone_.erase(at);
    return;
  }
  for (auto& [base, shown] : shown_)
    if (shown.allocation.id == note.allocation) {
      Guest& guest = shown.guests[static_cast<std::size_t>(incoming.peer)];
      guest.sight = note.word == Word::seen ? Sight::seen : Sight::hidden;
      guest.base = note.base;
    }
}

}  // namespace tutti::engine
