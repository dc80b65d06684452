// tool/bench/floor.hpp - the least time that a collective can take on this machine, measured in the
// same run by the same ranks with nothing in the way (docs/formats/bench.md has the definitions).
//
//   memory  each rank does its share of the folding and copying that the result needs, on its own
//           memory, warm, all ranks at once; or one exchange of flags if that takes longer
//   tcp     the bytes that a rank must send, at the speed of one plain TCP stream between two of
//           the ranks; or one message's way if that takes longer
#pragma once

#include <algorithm>
#include <map>
#include <memory>
#include <optional>
#include <tuple>

#include "tool/bench/meeting.hpp"
#include "tool/bench/task.hpp"

namespace tutti::tool {

// k arrays of so many bytes are folded into one result, which is written to t arrays. One array
// and one target is a copy.
struct FloorWork {
  int sources = 1;
  int targets = 1;
  std::size_t bytes = 0;
};
// One rank's even share of the work of a whole collective.
FloorWork floor_work(Collective collective, std::size_t bytes, bool in_place, int ranks);

// What a rank at least has to send over a network.
double least_bytes_sent(Collective collective, std::size_t bytes, int ranks);

// Folds `sources` arrays, writes the sum to `targets` (which may be the same arrays), as fast as
// plain loops go.
void fold_and_put(float* const* sources, int source_count, float* const* targets, int target_count,
                  std::size_t count);

struct LinkSpeed {
  double one_way_us = 0;
  double bytes_per_us = 0;
};
// One TCP stream from rank 0 to rank 1. Collective; the others sleep.
Result<LinkSpeed> measure_tcp(Group& group, BenchMeeting& meeting);

class Floor {
 public:
  // `budget_us` is that of a cell; a floor takes a part of it.
  Floor(Group& group, BenchMeeting& meeting, bool tcp, double budget_us)
      : group_(group),
        meeting_(meeting),
        tcp_(tcp),
        effort_{.budget_us = std::min(budget_us / 2, 20e3), .iterations = 0} {}
  // Collective. None where it could not be measured.
  std::optional<double> of(const BenchCell& cell);
  // On a GPU: the least that is read and written, at the speed of copies that all ranks make at once.
  static std::optional<double> of(const BenchCell& cell, int ranks,
                                  std::optional<double> ceiling_gbs);

 private:
  double flag_exchange_us();
  double memory_us(const FloorWork& work);
  std::optional<double> tcp_us(const BenchCell& cell);

  Group& group_;
  BenchMeeting& meeting_;
  bool tcp_;
  bench::Effort effort_;
  std::optional<double> flags_us_;
  std::map<std::tuple<int, int, std::size_t>, double> known_;
  std::optional<Result<LinkSpeed>> link_;
};

}  // namespace tutti::tool
