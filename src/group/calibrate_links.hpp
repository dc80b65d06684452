// group/calibrate_links.hpp - measures what messages of the group cost, by kind of link.
//
// Rank 0 leads; its nearest rank on the same host and its nearest one elsewhere serve. What they
// do is sent along, so that only rank 0 decides how long it takes:
//
//   rank 0                          peer
//   probe {echo, 20 x 64 KiB} ───▶
//   20 times 64 KiB ───▶ ◀─── 64 KiB
//   probe {both, 20 x 64 KiB} ───▶
//   20 times 64 KiB ◀──▶ 64 KiB
//   probe {burst, 16 x 64 B} ───▶
//   16 x 64 B ───▶ ◀─── 1 byte
//   probe {end} ───▶                serve_probes returns
//
// Between hosts long messages go both ways at once, as in most collectives: one that goes there and comes
// back leaves each way idle half of the time, in which whatever shapes the wire saves up credit for the next.
//
// Blocks, each message at most `timeout`. Messages are those of users: sends and receives.
#pragma once

#include <vector>

#include "core/clock.hpp"
#include "group/calibrate.hpp"
#include "tuner/machine.hpp"
#include "tutti/group.hpp"

namespace tutti::group {

// The ranks that serve; -1: there is none. The same on all ranks.
struct ProbePeers {
  int memory = -1;
  int tcp = -1;

  static ProbePeers find(const std::vector<int>& host_of);
  bool has(int rank) const { return rank == memory || rank == tcp; }
};

// On rank 0. `segment_bytes` is what the engine cuts messages into.
enum class Ways { in_turn, both_at_once };
Result<tuner::LinkCost> measure_link(Group& group, int peer, Ways ways, std::size_t segment_bytes,
                                     const Budget& budget, Nanoseconds timeout);
// Whether a network on which 64 KiB took so long is the one of which `link` tells.
bool is_like(const tuner::LinkCost& link, double seconds);
// Whether the one to `peer` still is: looked at up to three times, a few milliseconds each.
Result<bool> still_like(Group& group, int peer, const tuner::LinkCost& link, Nanoseconds timeout);
Status end_probes(Group& group, int peer, Nanoseconds timeout);

// On a peer, until rank 0 ends it.
Status serve_probes(Group& group, Nanoseconds timeout);

}  // namespace tutti::group
