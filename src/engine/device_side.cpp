#include "engine/device_side.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <thread>
#include <utility>

namespace tutti::engine {

std::string_view to_string(DeviceMeeting way) noexcept {
  switch (way) {
    case DeviceMeeting::host: return "host";
    case DeviceMeeting::memops: return "memops";
    case DeviceMeeting::kernel: return "kernel";
  }
  return "?";
}

Result<std::shared_ptr<DeviceSide>> DeviceSide::create(DeviceSideOptions options) {
  std::shared_ptr<DeviceSide> side(new DeviceSide(std::move(options)));
  if (Status status = side->open(); !status.ok()) return status;
  return side;
}

Status DeviceSide::open() {
  auto stream = make_stream();
  if (!stream.ok()) return stream.status();
  stream_ = *std::move(stream);
  for (cuda::Event& event : after_) {
    auto made = device().make_event();
    if (!made.ok()) return made.status();
    event = *std::move(made);
  }
  auto memory = device().allocate(kHandoutAt + sizeof(cuda::Handout));
  if (!memory.ok()) return memory.status();
  private_ = *std::move(memory);
  if (Status status = device().fill(private_.address(), 0, private_.bytes(), stream_.get());
      !status.ok())
    return status;
  options_.meeting.epoch = reinterpret_cast<std::uint64_t*>(private_.address());
  options_.meeting.finished = reinterpret_cast<std::uint32_t*>(private_.address() + 128);
  options_.meeting.abort = reinterpret_cast<const std::uint32_t*>(&own().abort);
  return device().synchronize(stream_.get());
}

// Whatever is under way ends by itself, or was aborted; memory goes when nobody waits any more.
DeviceSide::~DeviceSide() {
  for (cuda::Memory* memory : {&private_, &staging_}) context().put_away(std::move(*memory));
  for (cuda::Memory& memory : captured_) context().put_away(std::move(memory));
  context().forget_share(own().done);
  context().put_away(std::move(options_.meeting_owner));
  context().put_away(std::move(options_.board_owner));
}

// ---- what is called

void DeviceSide::publish(std::uint64_t ticket, std::uint64_t sequence, const Launch& launch) {
  DeviceCall& entry = own().call(ticket);
  entry.sequence = sequence;
  entry.call = launch.fingerprint;
  for (std::size_t peer = 0; peer < options_.members.size(); ++peer) {
    entry.to[peer] = launch.to_peer.empty() ? 0 : launch.to_peer[peer];
    entry.from[peer] = launch.from_peer.empty() ? 0 : launch.from_peer[peer];
  }
  // seq_cst: of two that publish and then look, one sees the other.
  entry.ticket.store(ticket, std::memory_order_seq_cst);
}

int DeviceSide::find_difference(std::uint64_t ticket) const {
  const DeviceCall& mine = own().call(ticket);
  for (int peer = 0; peer < size(); ++peer) {
    if (peer == rank() || !has_called(peer, ticket)) continue;
    const DeviceCall& theirs = of(peer).call(ticket);
    if (theirs.sequence != mine.sequence || !agree(mine.for_peer(peer), theirs.for_peer(rank())))
      return peer;
  }
  return -1;
}

std::optional<Fingerprint> DeviceSide::called(int peer, std::uint64_t sequence) const {
  for (const DeviceCall& entry : of(peer).calls) {
    const std::uint64_t ticket = entry.ticket.load(std::memory_order_acquire);
    if (ticket != 0 && entry.sequence == sequence) return entry.call;
  }
  return std::nullopt;
}

// ---- preparing

Result<std::uint64_t> DeviceSide::staging(std::size_t bytes, bool for_good) {
  if (for_good) {
    const cuda::RelaxedCapture relaxed;
    auto memory = device().allocate(bytes);
    if (!memory.ok()) return memory.status();
    captured_.push_back(*std::move(memory));
    return captured_.back().address();
  }
  return bytes <= staging_.bytes() ? staging_.address()
                                   : make_staging(std::max(bytes, 2 * staging_.bytes()));
}

Result<std::uint64_t> DeviceSide::make_staging(std::size_t bytes) {
  auto memory = device().allocate(bytes);
  if (!memory.ok()) return memory.status();
  // What is under way still uses the old one.
  context().put_away(std::exchange(staging_, *std::move(memory)));
  return staging_.address();
}

// All or nothing: an address is put in another's terms once.
Result<bool> DeviceSide::translate(DeviceWork& work, const DeviceReach::View& known) {
  DeviceReach& reach = context().reach();
  std::vector<DeviceReach::View> views;  // mostly one allocation, or two
  // What all peers have seen stays so.
  if (known.can_be_shown && known.sight == DeviceReach::Sight::seen) views.push_back(known);
  const auto view_of = [&](std::uint64_t address) -> DeviceReach::View& {
    for (DeviceReach::View& view : views)
      if (view.holds(address)) return view;
    views.push_back(reach.find(address, options_.members));
    reach.show(views.back(), options_.members, options_.channel);
    return views.back();
  };
  const auto each = [&](const auto& visit) {
    for (int peer = 0; peer < size(); ++peer) {
      if (peer == rank()) continue;
      cuda::Post& post = work.phase.mine[peer];
      if (post.source != 0) visit(peer, post.source);
      if (post.target != 0) visit(peer, post.target);
    }
  };
  auto sight = DeviceReach::Sight::seen;
  each([&](int, std::uint64_t& address) { sight = std::max(sight, view_of(address).sight); });
  if (sight == DeviceReach::Sight::hidden)
    return Status(Code::io,
                  fmt::format("device memory of rank {} cannot be mapped by another rank", rank()),
                  {rank(), rank(), 0});
  if (sight != DeviceReach::Sight::seen) return false;
  each([&](int peer, std::uint64_t& address) {
    address = view_of(address).at(static_cast<std::size_t>(peer), address);
  });
  return true;
}

// ---- waiting

bool DeviceSide::is_done(std::uint64_t ticket) const {
  if (own().done.load(std::memory_order_acquire) >= ticket) return true;
  if (device().facts().memory_operations || !is_launched(ticket)) return false;
  const auto happened = device().has_happened(after(ticket));
  if (happened.ok() && *happened) own().done.store(ticket, std::memory_order_release);
  return own().done.load(std::memory_order_acquire) >= ticket;
}

bool DeviceSide::has_entered(int peer, std::uint64_t ticket) const {
  return of(peer).entered.load(std::memory_order_acquire) >= ticket;
}

Result<bool> DeviceSide::try_wait_on(cuda::StreamHandle stream, std::uint64_t ticket) {
  if (is_done(ticket)) return true;
  Status status;
  if (is_launched(ticket)) {
    status = device().wait(stream, after(ticket));
  } else if (context().may_gate()) {
    const cuda::MemoryOperation gate{cuda::MemoryOperation::Kind::wait, address_of(&own().done),
                                     ticket};
    status = device().operate({&gate, 1}, stream);
  } else {
    return false;
  }
  return status.ok() ? Result<bool>(true) : status;
}

DeviceSide::Finding DeviceSide::finding() const {
  const std::uint64_t word = own().fault.load(std::memory_order_acquire);
  return {cuda::fault_of(word), cuda::peer_of(word), cuda::ticket_of(word)};
}

Status DeviceSide::trouble(std::uint64_t ticket) const {
  const auto happened = device().has_happened(after(ticket));
  return happened.status();
}

// First the word that stops whoever works, then the words that let go whoever waits: in this order
// they are seen.
void DeviceSide::abort() {
  const auto each = [&](const auto& visit) {
    for (DeviceBoard* board : options_.boards)
      if (board != nullptr) visit(*board);
  };
  each([](DeviceBoard& board) { board.abort.store(1, std::memory_order_seq_cst); });
  each([](DeviceBoard& board) {
    board.entered.store(cuda::kPoison, std::memory_order_seq_cst);
    board.left.store(cuda::kPoison, std::memory_order_seq_cst);
  });
  own().done.store(cuda::kPoison, std::memory_order_seq_cst);
}

void DeviceSide::reset() {
  if (way_ == DeviceMeeting::kernel) options_.meeting.entered = nullptr;
  for (auto* word : {&own().entered, &own().left, &own().done}) word->store(begun_);
  own().fault.store(0);
  own().abort.store(0);
  launched_.store(begun_);
}

bool DeviceSide::is_aborted() const { return own().abort.load(std::memory_order_acquire) != 0; }

// What was launched still writes the words that were let go: they are let go again until the stream is
// through.
void DeviceSide::settle(Nanoseconds patience) {
  const Nanoseconds last = steady_clock().now() + patience;
  const std::uint64_t ticket = launched_.load(std::memory_order_acquire);
  while (ticket != 0) {
    const auto happened = device().has_happened(after(ticket));
    if (!happened.ok() || *happened || steady_clock().now() >= last) return;
    abort();
    std::this_thread::sleep_for(std::chrono::microseconds(200));
  }
}

}  // namespace tutti::engine
