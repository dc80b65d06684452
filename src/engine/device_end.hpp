// engine/device_end.hpp - the device's part in a send or a receive.
//
// Nothing is put into a stream that would have to wait there: a message's memory is touched when the
// caller's stream has come to it, which whoever steps the group finds out by asking. So messages can
// neither hold up each other nor anything else on the device.
//
//   send   fetched into pinned memory and sent from there, or offered to a receiver that can map it
//   recv   received into pinned memory and stored from there, or taken out of the sender's memory
//
// Thread-safety  none: the baton's holder.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>

#include "cuda/device.hpp"
#include "engine/device_context.hpp"

namespace tutti::engine {

class DeviceEnd {
 public:
  // Notes how far `stream` has come.
  static Result<std::shared_ptr<DeviceEnd>> create(std::shared_ptr<DeviceContext> context,
                                                   cuda::StreamHandle stream, std::byte* memory,
                                                   std::size_t bytes);

  // Whether the caller's stream has come to it.
  Result<bool> is_ready() const { return context_->device().has_happened(before_.get()); }
  // Pinned memory as large as the message; null: there is none, and `trouble` says why.
  std::byte* pinned();
  Status trouble() const { return trouble_; }

  // By which `peer`, a rank of the world, can map the message; absent: not at all.
  std::optional<DeviceNote> offer(int peer, std::uint32_t channel) const;
  // Begin to copy: the message to pinned memory; its first `bytes` from there; or out of a peer's memory.
  Status fetch();
  Status store(std::size_t bytes);
  Status take(int peer, const DeviceNote& note, std::size_t bytes);
  // Whether what was begun is over.
  Result<bool> is_copied() const { return context_->device().has_happened(copied_.get()); }

 private:
  DeviceEnd(std::shared_ptr<DeviceContext> context, std::byte* memory, std::size_t bytes)
      : context_(std::move(context)), memory_(memory), bytes_(bytes) {}
  Status copy(std::uint64_t to, std::uint64_t from, std::size_t bytes);
  std::uint64_t address() const { return reinterpret_cast<std::uintptr_t>(memory_); }

  std::shared_ptr<DeviceContext> context_;
  std::byte* memory_;
  std::size_t bytes_;
  cuda::Event before_;
  cuda::Event copied_;
  std::shared_ptr<cuda::Memory> pinned_;
  Status trouble_;
};

}  // namespace tutti::engine
