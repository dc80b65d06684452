// cost/continuation.hpp - what a group of many ranks takes, by the same group with fewer.
//
// Playing a schedule takes time and memory by its ops, and planning wants a quick answer for tens of
// thousands of ranks. A value that is known for n, 4n and 16n ranks is continued as a geometric
// series: each factor of four adds ρ times what the one before it added. ρ is 4 for rings, 2 for
// grids, 1 for trees, and below 1 where a limit is approached; the nearest is taken.
//
// The time of an empty call and what its bytes add are continued apart: among few ranks the parts
// of a long array are long, and hide the latency that they no longer hide among many.
#pragma once

#include <array>
#include <functional>
#include <vector>

#include "cost/simulate.hpp"

namespace tutti::cost {

// Three small numbers of ranks on several hosts, a factor of four apart. For a power of two they are
// powers of two, and for others not, since schedules differ there. Groups with more ranks than the
// last of them are continued; plan/simulate.hpp plays groups of any size.
std::array<int, 3> fewer_ranks(int ranks, int per_host);
// The value for `ranks`, by those for fewer.
double continued(const std::array<double, 3>& values, const std::array<int, 3>& fewer, int ranks);

// A collective of some number of ranks, and the site to run it on.
struct Playable {
  Site site;
  Simulation simulation;
};

// What a collective of any number of ranks takes: played, or continued.
class CollectiveTime {
 public:
  // `with` makes it for so many ranks, `per_host` of them on a host. Code::unsupported where it has
  // to be played whole and is too large.
  static Result<CollectiveTime> of(int ranks, int per_host,
                                   const std::function<Result<Playable>(int ranks)>& with);

  Simulated with(double bytes) const;
  std::size_t ops() const;  // that are kept for it

 private:
  static Result<CollectiveTime> of_all(int ranks,
                                       const std::function<Result<Playable>(int ranks)>& with);

  int ranks_ = 0;
  std::array<int, 3> fewer_{};
  std::vector<Playable> played_;    // all ranks, or three times fewer
  std::vector<Simulated> nothing_;  // their empty calls
};

}  // namespace tutti::cost
