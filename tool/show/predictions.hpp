// tool/show/predictions.hpp - what the tuner expects of every algorithm, as data for the page.
#pragma once

#include <span>
#include <vector>

#include "core/json.hpp"
#include "schedule/schedule.hpp"
#include "tuner/machine.hpp"

namespace tutti::tool {

// Bytes of a call for which predictions are made.
const std::vector<std::size_t>& prediction_sizes();

// Hosts that a group of n is drawn with when none were named: as square as it goes; empty for
// primes.
std::vector<int> default_hosts(int n);

// {"one_host": {"choice": […], "ring": [nanoseconds, …], …}, "symmetric": …, "apart": …, "hosts": …}:
// one entry per size, for ranks on one host, there with symmetric memory, on a host each, and as in
// `host_of` (absent where that is empty).
Json predict(const schedule::Request& request, int ranks, std::span<const int> host_of,
             const tuner::Machine& machine);

// α, o, β and γ of the cost formula, per kind of link.
Json machine_facts(const tuner::Machine& machine);

}  // namespace tutti::tool
