// tool/bench/row.hpp - what was measured of one cell; docs/formats/bench.md has the same words.
#pragma once

#include <cstddef>
#include <optional>
#include <string>

#include "bench/protocol.hpp"
#include "tutti/types.hpp"

namespace tutti::tool {

struct Row {
  Collective collective = Collective::all_reduce;
  int ranks = 1;
  std::string transport;
  std::string memory;
  std::string device = "cpu";
  std::string meeting;  // how ranks meet there; empty on the CPU
  std::string algorithm;
  Dtype dtype = Dtype::f32;
  ReduceOp op = ReduceOp::sum;
  ReductionOrder order = ReductionOrder::any;
  std::size_t bytes = 0;
  std::size_t count = 0;
  bool in_place = false;
  bench::Timing timing;
  std::optional<double> predicted_us;
  std::optional<double> floor_us;
  std::optional<double> host_us;  // of a call on a device: what the host spends in it
  double cpu_s = 0;               // of all ranks together, per call
  std::size_t wrong = 0;

  double algbw_gbs() const;
  double busbw_gbs() const;
  std::optional<double> floor_share() const;   // floor / median
  std::optional<double> cpu_s_per_gb() const;  // none where no bytes move
};

}  // namespace tutti::tool
