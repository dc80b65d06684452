#include "plan/cost.hpp"

#include <gtest/gtest.h>

#include <chrono>

#include "schedule/catalog.hpp"

namespace tutti::plan {
namespace {

// α = 10 µs, β = 1 ns/B, γ = 0.25 ns/B.
Cluster flat() {
  Cluster cluster;
  cluster.name = "flat";
  cluster.fabric = Fabric::flat;
  cluster.between = {10e-6, 1e-6, 1e9};
  cluster.processor.reduce_bandwidth = 4e9;
  return cluster;
}

double seconds(const Cluster& cluster, Collective collective, Algorithm algorithm, int ranks,
               double bytes) {
  const auto found = cost(cluster, collective, algorithm, {.ranks = ranks}, bytes);
  EXPECT_TRUE(found.has_value());
  return found ? found->seconds : 0;
}

TEST(Cost, all_reduce_has_the_textbook_cost_by_hand) {
  // 8 ranks, 8 MB: n β = 8 ms, n γ = 2 ms.
  const double a = 10e-6, nb = 8e-3, ng = 2e-3;
  const Cluster c = flat();
  const auto all_reduce = [&](Algorithm algorithm) {
    return seconds(c, Collective::all_reduce, algorithm, 8, 8e6);
  };
  EXPECT_NEAR(all_reduce(Algorithm::ring), 14 * a + 14.0 / 8 * nb + 7.0 / 8 * ng, 1e-12);
  EXPECT_NEAR(all_reduce(Algorithm::recursive_doubling), 3 * (a + nb + ng), 1e-12);
  EXPECT_NEAR(all_reduce(Algorithm::halving_doubling), 6 * a + 14.0 / 8 * nb + 7.0 / 8 * ng, 1e-12);
  EXPECT_NEAR(all_reduce(Algorithm::binomial_tree), 6 * (a + nb) + 3 * ng, 1e-12);
}

TEST(Cost, other_collectives_have_the_textbook_cost_by_hand) {
  const double a = 10e-6, nb = 8e-3, ng = 2e-3;
  const Cluster c = flat();
  EXPECT_NEAR(seconds(c, Collective::broadcast, Algorithm::binomial_tree, 8, 8e6), 3 * (a + nb),
              1e-12);
  EXPECT_NEAR(seconds(c, Collective::gather, Algorithm::binomial_tree, 8, 8e6),
              3 * a + 7.0 / 8 * nb, 1e-12);
  EXPECT_NEAR(seconds(c, Collective::all_gather, Algorithm::ring, 8, 8e6), 7 * a + 7.0 / 8 * nb,
              1e-12);
  EXPECT_NEAR(seconds(c, Collective::all_gather, Algorithm::bruck, 6, 6e6), 3 * a + 5.0 / 6 * 6e-3,
              1e-12);
  EXPECT_NEAR(seconds(c, Collective::reduce_scatter, Algorithm::halving_doubling, 8, 8e6),
              3 * a + 7.0 / 8 * (nb + ng), 1e-12);
  // Bruck's all_to_all moves n/2 in each of lg p rounds.
  EXPECT_NEAR(seconds(c, Collective::all_to_all, Algorithm::bruck, 8, 8e6), 3 * a + 1.5 * nb,
              1e-12);
}

TEST(Cost, the_choice_is_the_cheapest_row_and_never_below_the_bound) {
  for (const Cluster& cluster : preset_clusters())
    for (int i = 0; i < kCollectives; ++i)
      for (const int ranks : {2, 6, 8, 64, 192, 256})
        for (const int stride : {1, 8})
          for (const double bytes : {8.0, 65536.0, 1e8}) {
            const auto collective = static_cast<Collective>(i);
            const Placement placement{ranks, stride};
            const auto best = cost(cluster, collective, placement, bytes);
            const double bound = lower_bound(cluster, collective, placement, bytes);
            double least = 1e9;
            for (const auto& row : costs(cluster, collective, placement, bytes)) {
              least = std::min(least, row.seconds);
              EXPECT_GE(row.seconds, bound * (1 - 1e-9))
                  << cluster.name << " " << to_string(collective) << " " << to_string(row.algorithm)
                  << " " << ranks << "/" << stride << " " << bytes;
            }
            EXPECT_LE(best.seconds, least);
            EXPECT_GE(best.seconds, bound * (1 - 1e-9));
          }
}

TEST(Cost, every_schedule_of_the_catalog_has_a_closed_form) {
  const Cluster cluster = *preset_cluster("h100-ib400");
  for (const auto& entry : schedule::catalog())
    EXPECT_TRUE(cost(cluster, entry.collective, entry.algorithm, {.ranks = 64}, 1e6).has_value())
        << to_string(entry.collective) << " " << to_string(entry.algorithm);
}

TEST(Cost, trees_beat_a_ring_by_two_orders_at_24576_ranks) {
  const Cluster summit = *preset_cluster("summit");
  const double ring = seconds(summit, Collective::all_reduce, Algorithm::ring, 24576, 8);
  const double tree =
      seconds(summit, Collective::all_reduce, Algorithm::double_binary_tree, 24576, 8);
  EXPECT_GT(ring / tree, 100);
  EXPECT_LT(ring / tree, 2000);
}

TEST(Cost, folding_switches_win_where_there_are_any) {
  const Placement placement{.ranks = 512};
  const auto with =
      cost(*preset_cluster("h100-ib400-sharp"), Collective::all_reduce, placement, 1e8);
  const auto without = cost(*preset_cluster("h100-ib400"), Collective::all_reduce, placement, 1e8);
  EXPECT_EQ(with.algorithm, Algorithm::automatic);
  EXPECT_LT(with.seconds, without.seconds);
}

TEST(Cost, one_rank_costs_nothing_and_a_message_what_its_wire_costs) {
  const Cluster h100 = *preset_cluster("h100-ib400");
  EXPECT_EQ(cost(h100, Collective::all_reduce, {.ranks = 1}, 1e9).seconds, 0);
  EXPECT_DOUBLE_EQ(send_seconds(h100, {.ranks = 2, .stride = 8}, 50e9), 1 + 4e-6);
  EXPECT_DOUBLE_EQ(send_seconds(h100, {.ranks = 2, .stride = 1}, 450e9), 1 + 1e-6);
}

TEST(Cost, corrections_lie_between_measured_sizes_and_ranks) {
  Cluster here = *preset_cluster("cpu-ethernet-1g");
  here.ranks_per_host = 8;
  here.machine = tuner::built_in_machine();
  const auto plain = [&](int ranks, double bytes) {
    return seconds(here, Collective::all_reduce, Algorithm::ring, ranks, bytes);
  };
  const double at_2 = plain(2, 4096), at_4 = plain(4, 4096), at_3 = plain(3, 4096);
  here.corrections = {{Collective::all_reduce, Algorithm::ring, 2, {{1024, 2}, {16384, 2}}},
                      {Collective::all_reduce, Algorithm::ring, 4, {{1024, 1}, {16384, 4}}}};
  EXPECT_NEAR(plain(2, 4096), 2 * at_2, 1e-12);
  EXPECT_NEAR(plain(4, 4096), 2 * at_4, 1e-12);  // half way between 1 and 4, in logarithms
  EXPECT_NEAR(plain(3, 4096), 2 * at_3, 1e-12);
  EXPECT_NEAR(plain(4, 1 << 20),
              4 * seconds(
                      [&] {
                        Cluster c = here;
                        c.corrections.clear();
                        return c;
                      }(),
                      Collective::all_reduce, Algorithm::ring, 4, 1 << 20),
              1e-12);
}

// Generous: 100,000 a second is what planning wants; this is only against a slip of an order.
TEST(Cost, answers_are_cheap) {
  const Cluster cluster = *preset_cluster("h100-ib400");
  const auto start = std::chrono::steady_clock::now();
  double sum = 0;
  for (int i = 0; i < 20000; ++i)
    sum += cost(cluster, Collective::all_reduce, {.ranks = 512}, 1e6 + i).seconds;
  const double took =
      std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  EXPECT_GT(sum, 0);
  RecordProperty("answers_per_second", std::to_string(20000 / took));
  EXPECT_LT(took, 5);
}

}  // namespace
}  // namespace tutti::plan
