#include "engine/staging.hpp"

#include <new>
#include <utility>

namespace tutti::engine {
namespace {

std::uint64_t number_of_address(const std::byte* data) {
  return reinterpret_cast<std::uintptr_t>(data);
}

}  // namespace

Status Staging::open() {
  const auto make_event = [&](cuda::Event& event) -> Status {
    auto made = side_.device().make_event();
    if (made.ok()) event = *std::move(made);
    return made.status();
  };
  Status status;
  for (Lane& lane : lanes_) {
    auto stream = side_.make_stream();
    if (!stream.ok()) return stream.status();
    lane.stream = *std::move(stream);
    for (cuda::Event& event : lane.events)
      if (status.ok()) status = make_event(event);
  }
  is_open_ = status.ok();
  return status;
}

std::byte* Staging::scratch(std::size_t bytes) {
  auto memory = side_.device().allocate_pinned(bytes);
  if (!memory.ok()) throw std::bad_alloc();
  side_.context().put_away(
      std::make_shared<cuda::Memory>(std::exchange(scratch_, *std::move(memory))));
  return scratch_.data();
}

Status Staging::begin(const Launch& launch) {
  side_.next_ticket();
  if (!is_open_)
    if (Status status = open(); !status.ok()) return status;
  cuda::Device& device = side_.device();
  const cuda::StreamHandle out = lane(Direction::to_host).stream.get();
  // A caller that blocks has put nothing into its stream since.
  const auto before = launch.before ? Result<std::shared_ptr<cuda::Event>>(launch.before)
                                    : side_.mark(launch.stream);
  if (!before.ok()) return before.status();
  Status status = device.wait(out, (*before)->get());
  // What is overwritten must not be in use by what the caller's stream still does, either.
  if (status.ok()) status = device.wait(lane(Direction::to_device).stream.get(), (*before)->get());
  for (void* ready : launch.ready)
    if (status.ok()) status = device.wait(out, ready);
  return status;
}

Result<std::uint64_t> Staging::copy(Direction direction, std::byte* to, const std::byte* from,
                                    std::size_t bytes) {
  Lane& lane = this->lane(direction);
  if (lane.begun >= kMost) {
    const auto over = is_over(direction, lane.begun + 1 - kMost);
    if (!over.ok()) return over.status();
    if (!*over) return std::uint64_t{0};
  }
  cuda::Device& device = side_.device();
  Status status =
      device.copy(number_of_address(to), number_of_address(from), bytes, lane.stream.get());
  if (status.ok())
    status = device.record(lane.events[(lane.begun + 1) % kMost].get(), lane.stream.get());
  if (!status.ok()) return status;
  return ++lane.begun;
}

Result<bool> Staging::is_over(Direction direction, std::uint64_t copy) const {
  const Lane& lane = this->lane(direction);
  // Its event serves another copy by now.
  if (copy + kMost <= lane.begun) return true;
  return side_.device().has_happened(lane.events[copy % kMost].get());
}

}  // namespace tutti::engine
