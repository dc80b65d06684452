// A group's part on the GPU: what is launched, what peers tell of their memory, what the device finds.
#include <fmt/format.h>

#include <cstring>

#include "engine/channel.hpp"
#include "engine/engine.hpp"

namespace tutti::engine {
namespace {

// How often the device is asked whether it is well.
constexpr Nanoseconds kAskDeviceEvery = std::chrono::microseconds(200);
// For how long those who wait for a message stay awake while only the device is to end: a copy of 1 GiB within
// it takes half a millisecond, and asleep they look less often than that is long.
constexpr Nanoseconds kAwakeForDevice = std::chrono::milliseconds(2);

}  // namespace

void Channel::use_device(std::shared_ptr<DeviceSide> side) {
  std::scoped_lock lock(baton_);
  runs_.use_device(side.get());
  inbox_.set_last_ticket(side->last_ticket());
  if (tracer() != nullptr)
    if (auto times = DeviceTimes::create(side->context().shared_device()); times.ok()) {
      side->time_with(*times);
      log_.time_with(*std::move(times));
    }
  launched_.use(std::move(side));
}

// Nothing of it runs now, so it has no number: the device compares calls when the graph is replayed.
Status Channel::capture(const Launch& launch) {
  Result<bool> captured = false;
  const auto attempt = [&] {
    if (!baton_.try_lock()) return false;
    captured = false;
    const Status exhausted = with_baton([&] {
      if (torn_down_ || current_ || held_ || inbox_.has_queued() || inbox_.has_failed()) return;
      PreparedRun& prepared = runs_.find(launch);
      captured = prepared.on_device
                     ? prepared.on_device->capture(launch)
                     : Status(Code::unsupported,
                              fmt::format("{} cannot be captured in a CUDA graph: it goes through "
                                          "host memory here",
                                          to_string(launch.collective)));
    });
    baton_.unlock();
    if (!exhausted.ok()) captured = exhausted;
    return !captured.ok() || *captured || inbox_.has_failed();
  };
  engine_->drive(*this, attempt, launch.timeout);
  if (inbox_.has_failed()) return health();
  if (captured.ok() && !*captured)
    return {Code::timed_out, fmt::format("{} could not be captured: other ranks did not map its "
                                         "memory within {:g} s",
                                         to_string(launch.collective), in_seconds(launch.timeout))};
  return captured.status();
}

void Channel::drive_to_device(const WorkState& work) {
  engine_->drive(
      *this, [&work] { return work.is_launched(); }, Nanoseconds::max());
}

// Maps what peers show, and ends what is over.
bool Channel::step_device() {
  bool moved = device()->context().step();
  for (Operation over; launched_.take_done(over); moved = true) end(over, {});
  if (!launched_.empty()) look_for_device_trouble();
  return moved;
}

// Calls that differ are found by kernels, and by whoever called last.
void Channel::look_for_device_trouble() {
  const Operation& oldest = launched_.oldest();
  const DeviceSide& side = *device();
  if (oldest.launch->after && fails_with(*oldest.launch->after, oldest)) return;
  const DeviceSide::Finding finding = side.finding();
  const bool found = finding.fault == cuda::Fault::differs && finding.ticket == oldest.ticket;
  const int peer = found ? finding.peer : side.find_difference(oldest.ticket);
  if (peer >= 0) note_device_mismatch(oldest, peer);
}

void Channel::note_device_mismatch(const Operation& operation, int peer) {
  const DeviceCall& mine = device()->own().call(operation.ticket);
  const DeviceCall& theirs = device()->of(peer).call(operation.ticket);
  arrivals_.note_mismatch(operation.sequence, mine.for_peer(peer), peer,
                          theirs.for_peer(members_.rank()));
}

// Whoever looks for the end of a collective does so all the time; the driver would keep others that launch from
// their work meanwhile.
bool Channel::is_time_to_ask_device() {
  if (launched_.empty()) return false;
  const Nanoseconds now = engine_->clock().now();
  if (now - device_asked_ < kAskDeviceEvery) return false;
  device_asked_ = now;
  return true;
}

bool Channel::awaits_device_soon() const {
  const std::int64_t since = device_since_.load(std::memory_order_relaxed);
  return since != Nanoseconds::max().count() &&
         engine_->clock().now() - Nanoseconds(since) < kAwakeForDevice;
}

void Channel::hear_of_device_memory(int peer, const transport::Header& header,
                                    const transport::Payload& payload) {
  DeviceNote note;
  const std::shared_ptr<DeviceContext> context = engine_->device_context();
  if (header.bytes != sizeof note)
    return fail({Code::corrupt,
                 fmt::format("{} sent {} bytes about device memory on group '{}', which cannot be "
                             "understood here",
                             members_.where(peer), header.bytes, members_.name()),
                 {members_.rank(), peer, 0}},
                true);
  std::memcpy(&note, payload.data, sizeof note);
  // Without a GPU this rank has mapped nothing: what it hears of is what has gone again.
  if (context)
    context->reach().on_note(options().members[static_cast<std::size_t>(peer)], channel(), note);
}

}  // namespace tutti::engine
