// tool/show/page_schedules.hpp - the schedules that a page holds, each with when it runs.
#pragma once

#include <span>
#include <string>

#include "schedule/schedule.hpp"
#include "tuner/machine.hpp"

namespace tutti::tool {

// Sizes of a call that a page offers: 2^2 … 2^30 bytes.
inline constexpr int kLeastExponent = 2;
inline constexpr int kMostExponent = 30;

struct PageRequest {
  schedule::Request request;     // without rank, hosts and shots
  std::span<const int> host_of;  // for several hosts; empty: not offered
  bool all_passes = false;       // also message forms as they were before the last pass
  const tuner::Machine& machine;
};

// Appends all forms of all algorithms for this number of ranks, as JSON objects with commas between.
Status add_schedules(const PageRequest& page, std::string& list);

}  // namespace tutti::tool
