#include "group/switch_cost.hpp"

#include <algorithm>
#include <array>

#include "core/clock.hpp"

namespace tutti::group {
namespace {

// From latency alone to where the line decides; a longer call takes in proportion.
constexpr std::array<std::size_t, 4> kSizes = {1 << 10, 32 << 10, 256 << 10, 2 << 20};
constexpr int kTimes = 3;

}  // namespace

Result<cost::Curve> measure_switch(RankGroup& group, CallOptions call) {
  const CallOptions among_ranks = call;
  call.algorithm = Algorithm::in_network;
  std::vector<float> values(kSizes.back() / sizeof(float));
  std::array<double, kSizes.size()> seconds;
  seconds.fill(1e9);
  for (std::size_t i = 0; i < kSizes.size(); ++i) {
    const Buffer buffer{values.data(), kSizes[i] / sizeof(float), Dtype::f32};
    // The first warms it up. The best of the others: what disturbs does not cost the same each time.
    for (int time = 0; time <= kTimes; ++time) {
      const Nanoseconds start = steady_clock().now();
      if (Status status = group.all_reduce(buffer, ReduceOp::sum, call); !status.ok())
        return status;
      if (time > 0) seconds[i] = std::min(seconds[i], in_seconds(steady_clock().now() - start));
    }
  }
  if (Status status = group.all_reduce(Buffer{seconds.data(), seconds.size(), Dtype::f64},
                                       ReduceOp::max, among_ranks);
      !status.ok())
    return status;
  std::vector<cost::Curve::Knot> knots;
  for (std::size_t i = 0; i < kSizes.size(); ++i) {
    const double least = knots.empty() ? 0 : knots.back().seconds;
    knots.push_back({static_cast<double>(kSizes[i]), std::max(seconds[i], least)});
  }
  return cost::Curve::from_knots(std::move(knots));
}

}  // namespace tutti::group
