// engine/device_run.hpp - runs a collective on device memory by its host form.
//
// For its group it is done when it is launched: what follows is the stream's affair, and the next
// collective may be launched behind it. Where hosts meet it is done when all have left.
//
//   room      until fewer than kDeviceRing are under way
//   mapping   until all peers have mapped what they are to touch; from the second time on, no time at all
//   then      kernel, memops: launched
//             host: reaching (the caller's stream), entering, working, leaving
//
// Thread-safety  none: whoever holds the baton steps it.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "engine/device_plan.hpp"
#include "engine/device_side.hpp"
#include "engine/run.hpp"

namespace tutti::engine {

class DeviceRun final : public Run {
 public:
  DeviceRun(DeviceSide& side, std::vector<schedule::HostForm> forms);
  static bool fits(const std::vector<schedule::HostForm>& forms, int rank) {
    return DevicePlan(forms, rank).fits();
  }

  void begin(const Launch& launch, std::uint64_t sequence) override;
  bool step() override;
  bool done() const override { return progress_ == Progress::done; }
  std::vector<int> waiting_for() const override;
  void abandon() override { progress_ = Progress::done; }
  Status failure() const override { return failure_; }

  // Into a stream that is being captured. Code::unsupported where that cannot be; false: peers have still
  // to map something.
  Result<bool> capture(const Launch& launch);

 private:
  enum class Progress : std::uint8_t {
    room,
    mapping,
    reaching,
    entering,
    working,
    leaving,
    done,
  };
  DevicePlan& plan_for(const Launch& launch);
  Status bind(bool for_good);
  bool step_room();
  bool step_mapping();
  bool step_by_host();
  void fail(const Status& status);

  DeviceSide& side_;
  DevicePlan plan_;
  std::optional<DevicePlan> push_plan_;  // the same for much to move; none: that would be no gain
  DeviceWork work_;
  DeviceReach::View view_;  // of the allocation that was looked at last
  const Launch* launch_ = nullptr;
  std::uint64_t sequence_ = 0;
  std::uint64_t ticket_ = 0;
  Progress progress_ = Progress::done;
  Status failure_;
};

}  // namespace tutti::engine
