#include "transport/ofi/fabric_port.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <mutex>

#include "core/auth.hpp"
#include "transport/ofi/ofi_link.hpp"

namespace tutti::transport::ofi {
namespace {

constexpr std::size_t kFramesAtOnce = 64;
constexpr std::size_t kLandingsAtOnce = 8;
// Frames of peers that may come before the next poll without waiting at their side.
constexpr int kReceives = 64;
constexpr int kReceivesPerPeer = 4;
constexpr int kMostReceives = 512;
constexpr std::size_t kCompletionsAtOnce = 32;
constexpr int kReadsPerPoll = 8;
// Providers that wait tell by a descriptor; but what they send again after a while, and what they missed, has to
// be looked for: sooner while operations wait. The others have to be asked.
constexpr Nanoseconds kNapBeside = std::chrono::milliseconds(2);
constexpr Nanoseconds kIdleNapBeside = std::chrono::milliseconds(20);
constexpr Nanoseconds kNapBlind = std::chrono::microseconds(50);
constexpr Nanoseconds kIdleNapBlind = std::chrono::milliseconds(1);

std::uint32_t random_word() {
  std::uint32_t word = 0;
  const std::string bytes = random_bytes(sizeof word);
  std::memcpy(&word, bytes.data(), sizeof word);
  return word;
}

}  // namespace

FabricPort::FabricPort(Rails rails, int ranks, std::size_t landing_bytes)
    : rails_(std::move(rails)),
      frames_(rails_, kFrameBytes, kFramesAtOnce),
      landings_(rails_, landing_bytes, kLandingsAtOnce),
      peers_(static_cast<std::size_t>(ranks)),
      next_word_(random_word()) {}

// Endpoints go before the memory that they might still reach.
FabricPort::~FabricPort() {
  for (const auto& rail : rails_) rail->close();
}

Result<std::shared_ptr<FabricPort>> FabricPort::open(const Provider& provider, int ranks,
                                                     std::size_t landing_bytes, bool tells) {
  const auto library = libfabric();
  if (!library.ok()) return library.status();
  const auto infos = survey(provider.name);
  if (!infos.ok()) return infos.status();
  Rails rails;
  for (const std::string& domain : provider.domains)
    for (const Info& info : *infos) {
      if (domain != info->domain_attr->name) continue;
      auto rail = Rail::open(**library, *info, tells);
      if (!rail.ok()) return rail.status();
      rails.push_back(std::move(*rail));
    }
  if (rails.empty())
    return Status(Code::unsupported, fmt::format("{} has lost its domains", provider.name));
  std::shared_ptr<FabricPort> fabric(new FabricPort(std::move(rails), ranks, landing_bytes));
  if (Status status = fabric->post_receives(ranks); !status.ok()) return status;
  return fabric;
}

Status FabricPort::post_receives(int ranks) {
  const int count = std::clamp(kReceivesPerPeer * ranks, kReceives, kMostReceives);
  for (std::size_t rail = 0; rail < rails_.size(); ++rail) {
    // Frames come by the first rail alone.
    if (rail > 0 && !rails_[rail]->writes_consume_receives()) continue;
    for (int i = 0; i < count; ++i) {
      RailTask* receive = take_operation(RailTask::Kind::receive);
      receive->rail = rail;
      receive->frame = frames_.take();
      if (!receive->frame)
        return {Code::out_of_memory, "no memory for frames could be registered (ulimit -l)"};
      if (!post_receive(*receive))
        return {Code::io, fmt::format("{} takes no receives", rails_[rail]->provider())};
    }
  }
  return {};
}

bool FabricPort::post_receive(RailTask& receive) {
  const Place& frame = receive.frame;
  return rails_[receive.rail]->receive(frame.data, kFrameBytes,
                                       frame.memory->descriptor(receive.rail),
                                       receive.context) == Posted::yes;
}

Result<std::vector<std::string>> FabricPort::addresses() const {
  std::vector<std::string> all;
  for (const auto& rail : rails_) {
    auto address = rail->address();
    if (!address.ok()) return address.status();
    all.push_back(std::move(*address));
  }
  return all;
}

Status FabricPort::join(OfiLink& link, int peer, const std::vector<std::string>& addresses) {
  Peer& entry = peers_[static_cast<std::size_t>(peer)];
  for (std::size_t rail = 0; rail < std::min(rails_.size(), addresses.size()); ++rail) {
    const auto added = rails_[rail]->add_peer(addresses[rail]);
    if (!added.ok()) return added.status();
    entry.address[rail] = *added;
  }
  entry.link = &link;
  if (driver_ < 0) driver_ = peer;
  return {};
}

void FabricPort::leave(int peer) {
  peers_[static_cast<std::size_t>(peer)].link = nullptr;
  if (driver_ != peer) return;
  driver_ = -1;
  for (std::size_t other = 0; other < peers_.size() && driver_ < 0; ++other)
    if (peers_[other].link != nullptr) driver_ = static_cast<int>(other);
}

// ---- what links ask for

RailTask* FabricPort::take_operation(RailTask::Kind kind) {
  std::lock_guard lock(lock_);
  if (free_operations_.empty()) free_operations_.push_back(&operations_.emplace_back());
  RailTask* operation = free_operations_.back();
  free_operations_.pop_back();
  operation->kind = kind;
  return operation;
}

void FabricPort::release_operation(RailTask& operation) {
  if (operation.frame) frames_.release(operation.frame.slot);
  operation.frame = {};
  operation.key = {};
  std::lock_guard lock(lock_);
  free_operations_.push_back(&operation);
}

RailTask* FabricPort::take_frame() {
  Place frame = frames_.take();
  if (!frame) return nullptr;
  RailTask* send = take_operation(RailTask::Kind::send);
  send->frame = std::move(frame);
  return send;
}

Posted FabricPort::post(RailTask& frame, Status& why) {
  const Peer& peer = peers_[static_cast<std::size_t>(frame.peer)];
  return rails_.front()->send(peer.address.front(), frame.frame.data, frame.bytes,
                              frame.frame.memory->descriptor(0), frame.context, why);
}

Posted FabricPort::post_write(int peer, std::uint32_t transfer, std::size_t rail,
                              const Grant& grant, const Place& from, std::size_t offset,
                              std::size_t bytes, Status& why) {
  RailTask* write = take_operation(RailTask::Kind::write);
  write->peer = peer;
  write->transfer = transfer;
  const Grant::Way& way = grant.ways[rail];
  Rail::Target target{peers_[static_cast<std::size_t>(peer)].address[rail],
                      {way.address + offset, way.key},
                      grant.word};
  Posted posted = Posted::yes;
  if (rails_[rail]->has_raw_keys()) {
    auto key = rails_[rail]->map(grant.raw_keys[rail]);
    why = key.status();
    if (key.ok()) write->key = std::move(*key);
    posted = key.ok() ? Posted::yes : Posted::failed;
    target.place.key = write->key.value();
  }
  if (posted == Posted::yes)
    posted = rails_[rail]->write(target, from.data + offset, bytes, from.memory->descriptor(rail),
                                 write->context, why);
  if (posted != Posted::yes) release_operation(*write);
  return posted;
}

std::uint32_t FabricPort::expect(int peer, std::uint32_t pieces, void* what) {
  while (expected_.count(next_word_) != 0) ++next_word_;
  expected_[next_word_] = {peer, pieces, what};
  return next_word_++;
}

// ---- completions

bool FabricPort::poll(MessageSink& sink) {
  bool happened = false;
  std::array<fi_cq_data_entry, kCompletionsAtOnce> entries;
  for (const auto& rail : rails_)
    for (int reads = 0; reads < kReadsPerPoll; ++reads) {
      Rail::Failed failed;
      const std::size_t count = rail->read(entries, failed);
      for (std::size_t i = 0; i < count; ++i) dispatch(*rail, entries[i], sink);
      if (!failed.why.ok()) on_failed(failed);
      happened |= count > 0;
      if (count < entries.size() && failed.why.ok()) break;
    }
  std::erase_if(unposted_, [this](RailTask* receive) { return post_receive(*receive); });
  return happened;
}

void FabricPort::nudge() {
  for (const auto& rail : rails_) rail->nudge();
}

void FabricPort::dispatch(Rail& rail, const fi_cq_data_entry& entry, MessageSink& sink) {
  auto* operation = static_cast<RailTask*>(entry.op_context);
  if ((entry.flags & FI_REMOTE_CQ_DATA) != 0) {
    on_write_landed(static_cast<std::uint32_t>(entry.data), sink);
    if (rail.writes_consume_receives() && !post_receive(*operation)) unposted_.push_back(operation);
    return;
  }
  if (operation->kind == RailTask::Kind::receive) return on_frame(*operation, entry.len, sink);
  OfiLink* link = peers_[static_cast<std::size_t>(operation->peer)].link;
  if (link != nullptr && operation->kind == RailTask::Kind::send) link->on_frame_out();
  if (link != nullptr && operation->kind == RailTask::Kind::write)
    link->on_written(operation->transfer);
  release_operation(*operation);
}

// Of a stranger's frame nothing is believed, and nothing said: there may be many.
void FabricPort::on_frame(RailTask& receive, std::size_t bytes, MessageSink& sink) {
  const std::byte* data = receive.frame.data;
  FrameHeader frame;
  if (bytes >= sizeof frame) {
    std::memcpy(static_cast<void*>(&frame), data, sizeof frame);
    OfiLink* link = frame.sender < peers_.size() ? peers_[frame.sender].link : nullptr;
    const bool whole = frame.payload_bytes == bytes - sizeof frame;
    if (link != nullptr && whole) link->on_frame(frame, data + sizeof frame, sink);
  }
  if (!post_receive(receive)) unposted_.push_back(&receive);
}

void FabricPort::on_write_landed(std::uint32_t word, MessageSink& sink) {
  const auto found = expected_.find(word);
  if (found == expected_.end() || --found->second.pieces > 0) return;
  const Landing landing = found->second;
  expected_.erase(found);
  if (OfiLink* link = peers_[static_cast<std::size_t>(landing.peer)].link)
    link->on_landed(landing.what, sink);
}

// Of a receive: a frame that is too long for any of ours.
void FabricPort::on_failed(const Rail::Failed& failed) {
  auto* operation = static_cast<RailTask*>(failed.context);
  if (operation == nullptr || failed.cancelled) return;
  if (operation->kind == RailTask::Kind::receive) {
    if (!post_receive(*operation)) unposted_.push_back(operation);
    return;
  }
  if (OfiLink* link = peers_[static_cast<std::size_t>(operation->peer)].link)
    link->on_broken(failed.why);
  release_operation(*operation);
}

// ---- sleeping

std::vector<int> FabricPort::descriptors() const {
  std::vector<int> all;
  for (const auto& rail : rails_)
    if (rail->descriptor() >= 0) all.push_back(rail->descriptor());
  return all;
}

Nanoseconds FabricPort::longest_nap(bool idle) {
  Nanoseconds nap = idle ? kIdleNapBeside : kNapBeside;
  for (const auto& rail : rails_) {
    if (rail->descriptor() < 0)
      nap = std::min(nap, idle ? kIdleNapBlind : kNapBlind);
    else if (!rail->may_wait())
      return Nanoseconds(0);
  }
  return nap;
}

// ---- symmetric memory

void FabricPort::add_region(std::uint64_t id, std::byte* data, std::size_t bytes, int file) {
  {
    std::shared_lock lock(regions_mutex_);
    if (regions_.count(id) != 0) return;
  }
  auto mapping = Mapping::shared(file, bytes, true);
  if (!mapping.ok()) return;  // then it is memory like any other
  auto memory = Enrolled::make(rails_, std::move(*mapping));
  if (!memory.ok()) return;
  std::unique_lock lock(regions_mutex_);
  regions_.emplace(id, SharedRegion{data, std::move(*memory)});
  has_regions_.store(true, std::memory_order_release);
}

void FabricPort::drop_region(std::uint64_t id) {
  std::unique_lock lock(regions_mutex_);
  regions_.erase(id);
}

Place FabricPort::region_of(const void* data, std::size_t bytes) const {
  if (!has_regions_.load(std::memory_order_acquire)) return {};
  const auto* at = static_cast<const std::byte*>(data);
  std::shared_lock lock(regions_mutex_);
  for (const auto& [id, region] : regions_)
    if (at >= region.data && bytes <= region.memory->bytes() &&
        at <= region.data + (region.memory->bytes() - bytes))
      return {region.memory->data() + (at - region.data), region.memory, 0};
  return {};
}

}  // namespace tutti::transport::ofi
