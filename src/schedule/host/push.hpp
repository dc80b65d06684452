// schedule/host/push.hpp - a pass on host forms of mapped memory: owners write what takers would read.
//
//   takers read    0: ▢◁1 ▢◁2     as often read as written
//   owners write   0: ▢▷1,2       read once, written as often
//
// Fewer bytes move where a chunk goes to several places; but all of an owner's work is its own, where takers would
// share it. So it pays for long chunks on a device, whose memory is the limit, and nowhere else.
#pragma once

#include <optional>
#include <span>
#include <vector>

#include "schedule/host/form.hpp"

namespace tutti::schedule {

// The forms of all ranks with every take moved by its giver alone (givers_share 1). Empty where that is no gain,
// or not one chunk for each rank: whoever works in place, the answer is the same.
std::optional<std::vector<HostForm>> pushed(std::span<const HostForm> forms);

}  // namespace tutti::schedule
