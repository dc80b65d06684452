#include "transport/ofi/incoming_table.hpp"

#include <algorithm>
#include <cstring>
#include <vector>

namespace tutti::transport::ofi {
namespace {

// A lease is a landing's number above this, or the pool's own.
constexpr std::uint64_t kLandings = std::uint64_t{1} << 32;

bool has_place(const Header& header) {
  return header.kind == MessageKind::data || header.kind == MessageKind::bulk;
}

}  // namespace

void IncomingTable::release(std::uint64_t lease) {
  if (lease > kLandings)
    fabric_.release_landing(lease - kLandings);
  else
    pool_.release(lease);
}

void IncomingTable::take(const Header& header, const std::byte* payload, MessageSink& sink) {
  if (closed_) return;
  Arrival arrival;
  arrival.header = header;
  arrival.here = true;
  if (header.bytes <= kInlineBytes) {
    arrival.in_line = true;
    std::memcpy(arrival.bytes.data(), payload, header.bytes);
  } else {
    if (has_place(header)) arrival.target = sink.place(peer_, header);
    if (arrival.target != nullptr)
      std::memcpy(arrival.target, payload, header.bytes);
    else
      copy_to_pool(arrival, payload);
  }
  if (must_wait(header.channel))
    waiting_.push_back(std::move(arrival));
  else
    hand_on(arrival, sink);
}

Result<Grant> IncomingTable::make_place(const Header& header, const LargeNotice& announcement,
                                        MessageSink& sink) {
  Arrival& arrival = waiting_.emplace_back();
  arrival.header = header;
  if (has_place(header) && !closed_) arrival.target = sink.place(peer_, header);
  if (arrival.target != nullptr) arrival.landing = fabric_.region_of(arrival.target, header.bytes);
  arrival.direct = static_cast<bool>(arrival.landing);
  if (!arrival.direct) arrival.landing = fabric_.take_landing();
  if (!arrival.landing) {
    waiting_.pop_back();
    return Status(Code::out_of_memory, "no more memory could be registered with the fabric");
  }
  ++landing_;
  Grant grant;
  grant.transfer = announcement.transfer;
  grant.word = fabric_.expect(peer_, announcement.pieces, &arrival);
  for (std::size_t rail = 0; rail < fabric_.rails(); ++rail) {
    const RemoteKey way = arrival.landing.memory->remote(rail, arrival.landing.data);
    grant.ways[rail] = {way.address, way.key};
    grant.raw_keys[rail] = arrival.landing.memory->raw_key(rail);
  }
  return grant;
}

void IncomingTable::land(void* what, MessageSink& sink) {
  const auto place = std::find_if(waiting_.begin(), waiting_.end(),
                                  [&](const Arrival& each) { return &each == what; });
  if (place == waiting_.end()) return;
  --landing_;
  place->here = true;
  settle(*place);
  hand_on_waiting(sink);
}

// Where it landed is not always where it is wanted.
void IncomingTable::settle(Arrival& arrival) {
  if (arrival.direct) {
    // Forgotten meanwhile: its place is not ours any more.
    if (arrival.target == nullptr) copy_to_pool(arrival, arrival.landing.data);
    arrival.landing = {};
  } else if (arrival.target != nullptr) {
    std::memcpy(arrival.target, arrival.landing.data, arrival.header.bytes);
    fabric_.release_landing(arrival.landing.slot);
    arrival.landing = {};
  }
}

void IncomingTable::copy_to_pool(Arrival& arrival, const std::byte* from) {
  const BufferPool::Buffer buffer = pool_.take(arrival.header.bytes);
  std::memcpy(buffer.data, from, arrival.header.bytes);
  arrival.view = buffer.data;
  arrival.lease = buffer.lease;
}

bool IncomingTable::must_wait(std::uint32_t channel) const {
  return std::any_of(waiting_.begin(), waiting_.end(),
                     [&](const Arrival& each) { return each.header.channel == channel; });
}

void IncomingTable::hand_on(Arrival& arrival, MessageSink& sink) {
  const bool landed = arrival.landing.slot != 0;
  const std::uint64_t lease = landed ? kLandings + arrival.landing.slot : arrival.lease;
  if (closed_) return release(lease);
  if (arrival.in_line)
    sink.on_message(peer_, arrival.header, {arrival.bytes.data(), 0, false});
  else if (arrival.target != nullptr)
    sink.on_message(peer_, arrival.header, {arrival.target, 0, true});
  else
    sink.on_message(peer_, arrival.header,
                    {landed ? arrival.landing.data : arrival.view, lease, false});
}

// Those that are here, and behind nothing of their channel that is not.
void IncomingTable::hand_on_waiting(MessageSink& sink) {
  std::vector<std::uint32_t> held_up;
  for (auto at = waiting_.begin(); at != waiting_.end();) {
    const std::uint32_t channel = at->header.channel;
    const bool is_behind = std::find(held_up.begin(), held_up.end(), channel) != held_up.end();
    if (!at->here || is_behind) {
      if (!is_behind) held_up.push_back(channel);
      ++at;
      continue;
    }
    hand_on(*at, sink);
    at = waiting_.erase(at);
  }
}

void IncomingTable::close() {
  closed_ = true;
  for (Arrival& arrival : waiting_) {
    arrival.target = nullptr;
    if (arrival.here)
      release(arrival.landing.slot != 0 ? kLandings + arrival.landing.slot : arrival.lease);
  }
  std::erase_if(waiting_, [](const Arrival& arrival) { return arrival.here; });
}

void IncomingTable::forget(std::uint32_t channel) {
  for (Arrival& arrival : waiting_) {
    std::byte* const target = arrival.target;
    if (arrival.header.channel != channel || target == nullptr) continue;
    arrival.target = nullptr;
    if (arrival.here) copy_to_pool(arrival, target);
  }
}

}  // namespace tutti::transport::ofi
