#include <gtest/gtest.h>

#include "plan/collective_cost.hpp"
#include "tool/plan/corrections.hpp"

namespace tutti::tool::plan {
namespace {

namespace planner = tutti::plan;

planner::Cluster four_hosts() {
  planner::Cluster cluster;
  cluster.name = "four hosts";
  cluster.between = {50e-6, 5e-6, 125e6};
  cluster.machine = tuner::built_in_machine();
  return cluster;
}

// So many times what the model says, which differs by number of ranks.
double measured_over_modelled(int ranks) { return ranks == 2 ? 1.5 : ranks == 3 ? 4 : 6; }

std::vector<MeasuredCell> measured_cells(const planner::Cluster& cluster) {
  std::vector<MeasuredCell> cells;
  for (const int ranks : {2, 3, 4})
    for (const std::size_t bytes : {96u, 4800u, 960000u}) {
      MeasuredCell cell{Collective::all_reduce, Algorithm::ring, ranks, bytes};
      const auto modelled = planner::cost_of(cluster, cell.collective, cell.algorithm,
                                             {.ranks = ranks}, static_cast<double>(bytes));
      cell.seconds = modelled->seconds * measured_over_modelled(ranks);
      cell.visits = 5;
      cells.push_back(cell);
    }
  return cells;
}

TEST(Corrections, predict_what_was_measured_for_every_number_of_ranks) {
  planner::Cluster cluster = four_hosts();
  const auto cells = measured_cells(cluster);
  // As calibration goes: what there is so far, again and again.
  for (const std::size_t so_far : {3u, 6u, 9u})
    cluster.corrections = corrections_of(cluster, std::span(cells).first(so_far));
  ASSERT_EQ(cluster.corrections.size(), 3u);
  for (const MeasuredCell& cell : cells) {
    const auto predicted = planner::cost_of(cluster, cell.collective, cell.algorithm,
                                            {.ranks = cell.ranks}, static_cast<double>(cell.bytes));
    EXPECT_NEAR(predicted->seconds / cell.seconds, 1, 1e-3) << cell.ranks << ' ' << cell.bytes;
  }
}

}  // namespace
}  // namespace tutti::tool::plan
