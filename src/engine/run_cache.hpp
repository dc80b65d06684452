// engine/run_cache.hpp - runs that are ready for calls of their kind: training loops repeat themselves.
//
// A call's kind is its collective, algorithm, root, order and whether it works in place; sizes and memory
// come with each launch. Ranks that share a host run by the host form where there is one, else by
// messages; on device memory likewise, where all devices can be reached.
//
// Thread-safety  none: the baton's holder.
#pragma once

#include <cstdint>
#include <memory>
#include <unordered_map>

#include "engine/device_run.hpp"
#include "engine/group_view.hpp"
#include "engine/host_run.hpp"
#include "engine/members.hpp"
#include "engine/message_run.hpp"
#include "engine/switched_run.hpp"
#include "schedule/catalog.hpp"

namespace tutti::engine {

// One of them.
struct PreparedRun {
  std::unique_ptr<HostRun> on_host;
  std::unique_ptr<DeviceRun> on_device;
  std::unique_ptr<ByMessage> by_message;

  Run& run() const {
    if (on_host) return *on_host;
    return on_device ? static_cast<Run&>(*on_device) : static_cast<Run&>(*by_message);
  }
};

class RunCache {
 public:
  RunCache(GroupView& group, const Members& members, Uplink& uplink,
           const schedule::Catalog& catalog, std::size_t segment_bytes)
      : group_(group),
        members_(members),
        uplink_(uplink),
        catalog_(catalog),
        segment_bytes_(segment_bytes) {}

  // Forgets all runs: from now on ranks meet there, or (null) nowhere.
  void meet_in(HostMemory* memory);
  // The same for device memory.
  void use_device(DeviceSide* side);
  // Good until the next meet_in(). The last one is found by one comparison.
  PreparedRun& find(const Launch& launch) {
    const std::uint64_t key = key_of(launch);
    if (key == last_key_ && last_ != nullptr) return *last_;
    last_ = &find_or_make(launch, key);
    last_key_ = key;
    return *last_;
  }

 private:
  static std::uint64_t key_of(const Launch& launch) {
    return static_cast<std::uint64_t>(launch.collective) |
           static_cast<std::uint64_t>(launch.algorithm) << 8 |
           static_cast<std::uint64_t>(launch.shots) << 16 |
           static_cast<std::uint64_t>(launch.in_place) << 24 |
           // Ranks of a v-call know only their own sizes, so peers could not tell where a chunk lies.
           static_cast<std::uint64_t>(launch.to_peer.empty()) << 25 |
           static_cast<std::uint64_t>(launch.on_device) << 26 |
           // What only the host can fold.
           static_cast<std::uint64_t>(launch.reduction.op == ReduceOp::user) << 27 |
           static_cast<std::uint64_t>(launch.order) << 28 |
           static_cast<std::uint64_t>(static_cast<std::uint32_t>(launch.root)) << 32;
  }
  PreparedRun& find_or_make(const Launch& launch, std::uint64_t key);
  std::unique_ptr<HostRun> make_on_host(const Launch& launch) const;
  std::unique_ptr<DeviceRun> make_on_device(const Launch& launch) const;
  std::unique_ptr<ByMessage> make_by_message(const Launch& launch) const;
  schedule::Program barrier_beside(const Launch& launch) const;

  GroupView& group_;
  const Members& members_;
  Uplink& uplink_;
  const schedule::Catalog& catalog_;
  std::size_t segment_bytes_;
  HostMemory* memory_ = nullptr;
  DeviceSide* device_ = nullptr;
  std::unordered_map<std::uint64_t, PreparedRun> runs_;
  std::uint64_t last_key_ = 0;
  PreparedRun* last_ = nullptr;
};

}  // namespace tutti::engine
