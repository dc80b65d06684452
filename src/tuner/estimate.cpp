#include "tuner/estimate.hpp"

#include <cmath>

#include "topology/topology.hpp"
#include "tuner/cost.hpp"
#include "tuner/messages.hpp"
#include "tuner/stage.hpp"
#include "tuner/timeline.hpp"

namespace tutti::tuner {
namespace {

Nanoseconds rounded(double seconds) {
  return Nanoseconds(static_cast<Nanoseconds::rep>(std::llround(seconds * 1e9)));
}

bool is_staged(const schedule::Entry& entry, const Situation& situation) {
  return entry.algorithm == Algorithm::direct && topology::host_count(situation.host_of) <= 1;
}

// Shared memory has blocks of the default size; what is larger would be cut again. A segment as
// long as the longest message is no other than one twice as long.
template <class Model>
bool is_of_use(std::size_t segment_bytes, const Model& messages) {
  return (messages.uses_tcp() || segment_bytes <= kDefaultSegmentBytes) &&
         static_cast<double>(segment_bytes) < 2 * messages.longest_message();
}

// Model: Messages or Timeline.
template <class Model>
Estimate by_messages(const Model& messages, const Machine& machine) {
  double best = messages.seconds(kDefaultSegmentBytes);
  Estimate chosen;
  const auto consider = [&](std::size_t segment_bytes, const StreamGain& streams) {
    const double seconds = messages.seconds(segment_bytes, streams);
    if (seconds >= best * kWorthIt) return false;
    best = seconds;
    chosen.segment_bytes = segment_bytes == kDefaultSegmentBytes ? 0 : segment_bytes;
    chosen.streams = streams.streams == 1 ? 0 : streams.streams;
    return true;
  };
  StreamGain streams;
  if (messages.uses_tcp())
    for (const StreamGain& more : machine.streams)
      if (consider(kDefaultSegmentBytes, more)) streams = more;
  for (const std::size_t segment_bytes : kSegmentBytes)
    if (is_of_use(segment_bytes, messages)) consider(segment_bytes, streams);
  chosen.time = rounded(best);
  return chosen;
}

}  // namespace

Estimate estimate(const schedule::Entry& entry, const Situation& situation, int shots,
                  const Machine& machine) {
  if (is_staged(entry, situation))
    return {rounded(stage_seconds(entry, situation, shots, machine)), 0, 0};
  if (situation.ranks <= kWholeRanks)
    return by_messages(Timeline(entry, situation, shots, machine), machine);
  return by_messages(Messages(entry, situation, shots, machine), machine);
}

}  // namespace tutti::tuner
