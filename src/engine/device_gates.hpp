// engine/device_gates.hpp - how a stream waits for what a group does on the device.
#pragma once

#include <memory>
#include <utility>

#include "engine/device_side.hpp"
#include "engine/launch.hpp"
#include "engine/work_state.hpp"

namespace tutti::engine {

// How a stream waits for a collective of its group.
class CollectiveGate final : public StreamGate {
 public:
  CollectiveGate(std::shared_ptr<DeviceSide> side, const Launch& launch, std::uint64_t ticket)
      : side_(std::move(side)),
        ticket_(ticket),
        in_stream_(launch.in_stream),
        stream_(launch.stream) {}
  bool is_launched() const override { return side_->is_launched(ticket_); }
  Result<bool> try_wait_on(void* stream) override {
    // It is to come into that very stream: nothing may stand before it there.
    if (in_stream_ && !is_launched()) return false;
    if (in_stream_ && stream == stream_) return true;
    return side_->try_wait_on(stream, ticket_);
  }
  bool is_for_host() const override { return side_->context().device().traffic().has_duties(); }

 private:
  std::shared_ptr<DeviceSide> side_;
  std::uint64_t ticket_;
  bool in_stream_;
  void* stream_;
};

// How a stream waits for sends and receives.
class MessageGate final : public StreamGate {
 public:
  explicit MessageGate(std::shared_ptr<GateKeeper> keeper) : keeper_(std::move(keeper)) {}
  bool is_launched() const override { return false; }
  Result<bool> try_wait_on(void* stream) override { return keeper_->wait_on(stream); }

 private:
  std::shared_ptr<GateKeeper> keeper_;
};

}  // namespace tutti::engine
