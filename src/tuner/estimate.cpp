#include "tuner/estimate.hpp"

#include <cmath>

#include "topology/topology.hpp"
#include "tuner/cost.hpp"
#include "tuner/messages.hpp"
#include "tuner/stage.hpp"

namespace tutti::tuner {
namespace {

Nanoseconds rounded(double seconds) {
  return Nanoseconds(static_cast<Nanoseconds::rep>(std::llround(seconds * 1e9)));
}

bool is_staged(const schedule::Entry& entry, const Situation& situation) {
  return entry.algorithm == Algorithm::direct && topology::host_count(situation.host_of) <= 1;
}

// Shared memory has blocks of the default size; what is larger would be cut again.
bool fits(std::size_t segment_bytes, const Messages& messages) {
  return messages.uses_tcp() || segment_bytes <= kDefaultSegmentBytes;
}

Estimate by_messages(const Messages& messages, const Machine& machine) {
  double best = messages.seconds(kDefaultSegmentBytes);
  Estimate chosen;
  const auto consider = [&](std::size_t segment_bytes, const StreamGain& streams) {
    const double seconds = messages.seconds(segment_bytes, streams);
    if (seconds >= best * kWorthIt) return;
    best = seconds;
    chosen.segment_bytes = segment_bytes == kDefaultSegmentBytes ? 0 : segment_bytes;
    chosen.streams = streams.streams == 1 ? 0 : streams.streams;
  };
  if (messages.can_be_cut()) {
    for (const std::size_t segment_bytes : kSegmentBytes)
      if (fits(segment_bytes, messages)) consider(segment_bytes, {});
    if (messages.uses_tcp())
      for (const StreamGain& streams : machine.streams) {
        consider(kDefaultSegmentBytes, streams);
        for (const std::size_t segment_bytes : kSegmentBytes) consider(segment_bytes, streams);
      }
  }
  chosen.time = rounded(best);
  return chosen;
}

}  // namespace

Estimate estimate(const schedule::Entry& entry, const Situation& situation, int shots,
                  const Machine& machine) {
  if (is_staged(entry, situation))
    return {rounded(stage_seconds(entry, situation, shots, machine)), 0, 0};
  return by_messages(Messages(entry, situation, shots, machine), machine);
}

}  // namespace tutti::tuner
