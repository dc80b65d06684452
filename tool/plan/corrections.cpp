#include "tool/plan/corrections.hpp"

#include <algorithm>

#include "plan/collective_cost.hpp"
#include "tutti/shape.hpp"

namespace tutti::tool::plan {
namespace {

namespace planner = tutti::plan;
using planner::Cluster;
using planner::Correction;

// Few visits leave some cells disturbed, which only ever adds time: a ratio that stands out above
// both neighbours is brought down to the higher one.
void flatten_peaks(std::vector<Correction::Point>& points) {
  constexpr double kStandsOut = 1.25;
  for (std::size_t i = 1; i + 1 < points.size(); ++i) {
    const double beside = std::max(points[i - 1].ratio, points[i + 1].ratio);
    if (points[i].ratio > kStandsOut * beside) points[i].ratio = beside;
  }
}

// Of one algorithm on one number of ranks: measured, made monotone in size, over modelled.
Correction correction_of(const Cluster& bare, std::span<const MeasuredCell> cells) {
  std::vector<tuner::Sample> samples;
  int fewest_visits = cells.front().visits;
  for (const MeasuredCell& cell : cells) {
    samples.push_back({std::max(1.0, static_cast<double>(cell.bytes)), cell.seconds});
    fewest_visits = std::min(fewest_visits, cell.visits);
  }
  const MeasuredCell& first = cells.front();
  Correction correction{first.collective, first.algorithm, first.ranks, {}};
  const tuner::Curve curve = tuner::Curve::fit(samples);
  for (const auto& [bytes, seconds] : curve.knots()) {
    const bool empty = !shape_of(first.collective).has_data();
    const auto modelled = planner::cost_of(bare, first.collective, first.algorithm,
                                           {.ranks = first.ranks}, empty ? 0 : bytes);
    if (modelled && modelled->seconds > 0)
      correction.points.push_back({bytes, seconds / modelled->seconds});
  }
  constexpr int kEnoughVisits = 4;
  if (fewest_visits < kEnoughVisits) flatten_peaks(correction.points);
  return correction;
}

}  // namespace

std::vector<Correction> corrections_of(Cluster cluster, std::span<const MeasuredCell> cells) {
  // They would count as the model, for the nearest number of ranks too.
  cluster.corrections.clear();
  std::vector<Correction> corrections;
  const auto is_alike = [](const MeasuredCell& a, const MeasuredCell& b) {
    return a.collective == b.collective && a.algorithm == b.algorithm && a.ranks == b.ranks;
  };
  for (std::size_t first = 0, last = 0; first < cells.size(); first = last) {
    while (last < cells.size() && is_alike(cells[first], cells[last])) ++last;
    auto correction = correction_of(cluster, cells.subspan(first, last - first));
    if (!correction.points.empty()) corrections.push_back(std::move(correction));
  }
  return corrections;
}

}  // namespace tutti::tool::plan
