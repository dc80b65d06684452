#include "engine/device_end.hpp"

namespace tutti::engine {

Result<std::shared_ptr<DeviceEnd>> DeviceEnd::create(std::shared_ptr<DeviceContext> context,
                                                     cuda::StreamHandle stream, std::byte* memory,
                                                     std::size_t bytes) {
  cuda::Device& device = context->device();
  std::shared_ptr<DeviceEnd> end(new DeviceEnd(std::move(context), memory, bytes));
  for (cuda::Event* event : {&end->before_, &end->copied_}) {
    auto made = device.make_event();
    if (!made.ok()) return made.status();
    *event = *std::move(made);
  }
  if (Status status = device.record(end->before_.get(), stream); !status.ok()) return status;
  return end;
}

std::byte* DeviceEnd::pinned() {
  if (!pinned_) {
    auto memory = context_->pinned(bytes_);
    if (!memory.ok()) return trouble_ = memory.status(), nullptr;
    pinned_ = *std::move(memory);
  }
  return pinned_->data();
}

std::optional<DeviceNote> DeviceEnd::offer(int peer, std::uint32_t channel) const {
  return bytes_ == 0 ? std::nullopt : context_->reach().offer(peer, channel, address());
}

Status DeviceEnd::copy(std::uint64_t to, std::uint64_t from, std::size_t bytes) {
  cuda::Device& device = context_->device();
  const cuda::StreamHandle stream = context_->message_stream();
  Status status = bytes == 0 ? Status() : device.copy(to, from, bytes, stream);
  return status.ok() ? device.record(copied_.get(), stream) : status;
}

Status DeviceEnd::fetch() {
  std::byte* to = pinned();
  return to == nullptr ? trouble_ : copy(reinterpret_cast<std::uintptr_t>(to), address(), bytes_);
}

Status DeviceEnd::store(std::size_t bytes) {
  return copy(address(), reinterpret_cast<std::uintptr_t>(pinned()), bytes);
}

Status DeviceEnd::take(int peer, const DeviceNote& note, std::size_t bytes) {
  const auto from = context_->reach().accept(peer, note, bytes);
  return from.ok() ? copy(address(), *from, bytes) : from.status();
}

}  // namespace tutti::engine
