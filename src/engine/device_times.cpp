#include "engine/device_times.hpp"

#include <algorithm>
#include <cmath>
#include <utility>

namespace tutti::engine {
namespace {

// The driver tells times as a float of milliseconds: below this it is true to 0.1 µs.
constexpr std::int64_t kLongestFromBase = 1'000'000'000;
// How far two clocks may drift apart meanwhile.
constexpr std::int64_t kDrift = 20'000;

}  // namespace

void DeviceClock::restart(std::int64_t by) {
  least_ = offset() + by - kDrift;
  most_ = kUnknown;
}

Result<std::shared_ptr<DeviceTimes>> DeviceTimes::create(std::shared_ptr<cuda::Device> device) {
  std::shared_ptr<DeviceTimes> times(new DeviceTimes(std::move(device)));
  for (Slot& slot : times->slots_)
    for (cuda::Event* event : {&slot.begin, &slot.end}) {
      auto made = times->device_->make_event(true);
      if (!made.ok()) return made.status();
      *event = *std::move(made);
    }
  return times;
}

void DeviceTimes::begin(std::uint64_t ticket, cuda::StreamHandle stream) {
  Slot& own = slot(ticket);
  own.ticket = 0;
  own.launched = trace::now_ns();
  (void)device_->record(own.begin.get(), stream);  // a device that is broken is told elsewhere
}

void DeviceTimes::end(std::uint64_t ticket, cuda::StreamHandle stream) {
  Slot& own = slot(ticket);
  if (device_->record(own.end.get(), stream).ok()) own.ticket = ticket;
}

void DeviceTimes::note(std::uint64_t ticket, const trace::TraceEntry& entry,
                       std::string_view name) {
  noted_.push_back({ticket, trace::now_ns(), entry, std::string(name)});
}

void DeviceTimes::tell(trace::Tracer& tracer) {
  for (; !noted_.empty(); noted_.pop_front()) {
    Noted& first = noted_.front();
    Slot& own = slot(first.ticket);
    if (own.ticket != first.ticket) continue;  // it went through the host, or was overtaken
    const auto happened = device_->has_happened(own.end.get());
    if (happened.ok() && !*happened) return;
    if (happened.ok() && place(own, first)) tracer.device(first.entry, first.name);
  }
}

// Its times, on the host's clock.
bool DeviceTimes::place(Slot& own, Noted& noted) {
  std::int64_t begin = 0;
  if (base_.get() != nullptr) {
    const auto from_base = device_->seconds_between(base_.get(), own.begin.get());
    if (!from_base.ok()) return false;
    begin = std::llround(*from_base * 1e9);
  }
  const auto length = device_->seconds_between(own.begin.get(), own.end.get());
  if (!length.ok()) return false;
  if (base_.get() == nullptr || begin > kLongestFromBase) {
    if (!rebase(own, begin)) return false;
    begin = 0;
  }
  const std::int64_t end = begin + std::llround(*length * 1e9);
  clock_.begun(begin, own.launched);
  clock_.ended(end, noted.seen);
  noted.entry.begin = begin + clock_.offset();
  noted.entry.end = end + clock_.offset();
  noted.entry.origin = static_cast<std::uint64_t>(device_->facts().ordinal);
  return true;
}

bool DeviceTimes::rebase(Slot& own, std::int64_t at) {
  auto fresh = device_->make_event(true);
  if (!fresh.ok()) return false;
  if (base_.get() != nullptr) clock_.restart(at);
  base_ = std::exchange(own.begin, *std::move(fresh));
  return true;
}

}  // namespace tutti::engine
