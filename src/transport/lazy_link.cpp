#include "transport/lazy_link.hpp"

#include <mutex>
#include <utility>

namespace tutti::transport {
namespace {

// Whoever has no link to this rank hears of it in another way.
bool makes_a_link(MessageKind kind) {
  return kind != MessageKind::goodbye && kind != MessageKind::abort;
}

bool waits_for_the_link(MessageKind kind) {
  return kind != MessageKind::data && kind != MessageKind::bulk && kind != MessageKind::eager;
}

}  // namespace

LazyLink::LazyLink(Promise promise, std::function<void()> want)
    : promise_(promise), want_(std::move(want)) {}

void LazyLink::come_up(Link& link) {
  std::lock_guard lock(lock_);
  urgencies_.each(
      [&](std::uint32_t channel, Urgency urgency) { link.set_urgency(channel, urgency); });
  for (const Kept& kept : kept_)
    (void)link.send(kept.header, kept.payload.data(), kept.payload.size(), 0);
  link.flush_held();
  kept_ = {};
  wanted_ = true;
  link_.store(&link, std::memory_order_release);
}

void LazyLink::lose() {
  std::lock_guard lock(lock_);
  lost_ = true;
  kept_ = {};
}

void LazyLink::open() {
  if (is_up()) return;
  {
    std::lock_guard lock(lock_);
    if (std::exchange(wanted_, true)) return;
  }
  want_();
}

std::size_t LazyLink::eager_bytes() const {
  const Link* real = link();
  return real != nullptr ? real->eager_bytes() : promise_.eager_bytes;
}

Sent LazyLink::send(const Header& header, const void* payload, std::size_t bytes,
                    std::uint64_t token) {
  if (Link* real = link()) return real->send(header, payload, bytes, token);
  bool is_first = false;
  const Sent sent = keep(header, payload, bytes, token, is_first);
  if (is_first) want_();
  return sent;
}

Sent LazyLink::keep(const Header& header, const void* payload, std::size_t bytes,
                    std::uint64_t token, bool& is_first) {
  std::lock_guard lock(lock_);
  if (Link* real = link()) return real->send(header, payload, bytes, token);  // just now
  if (lost_ || (!wanted_ && !makes_a_link(header.kind))) return {true, false, bytes};
  is_first = !std::exchange(wanted_, true);
  if (!waits_for_the_link(header.kind)) return {};
  kept_.push_back({header, std::string(static_cast<const char*>(payload), bytes)});
  return {true, false, bytes};
}

void LazyLink::flush_held() {
  if (Link* real = link()) real->flush_held();
}

void LazyLink::release(std::uint64_t lease) {
  if (Link* real = link()) real->release(lease);
}

bool LazyLink::revoked(std::uint64_t lease) const {
  const Link* real = link();
  return real != nullptr && real->revoked(lease);
}

void LazyLink::set_urgency(std::uint32_t channel, Urgency urgency) {
  std::lock_guard lock(lock_);
  urgencies_.set(channel, urgency);
  if (Link* real = link()) real->set_urgency(channel, urgency);
}

void LazyLink::forget(std::uint32_t channel) {
  if (Link* real = link()) real->forget(channel);
}

bool LazyLink::is_cut() const {
  const Link* real = link();
  return real != nullptr && real->is_cut();
}

MemoryRef LazyLink::share(const void* data, std::size_t bytes) const {
  const Link* real = link();
  return real != nullptr ? real->share(data, bytes) : MemoryRef{};
}

std::byte* LazyLink::reach(const MemoryRef& ref, std::size_t bytes) const {
  const Link* real = link();
  return real != nullptr ? real->reach(ref, bytes) : nullptr;
}

void LazyLink::rouse() {
  if (Link* real = link()) real->rouse();
}

const Doorbell* LazyLink::doorbell() const {
  const Link* real = link();
  return real != nullptr ? real->doorbell() : nullptr;
}

std::int64_t LazyLink::process() const {
  const Link* real = link();
  return real != nullptr ? real->process() : 0;
}

}  // namespace tutti::transport
