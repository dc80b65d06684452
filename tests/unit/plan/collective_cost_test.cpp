#include "plan/collective_cost.hpp"

#include <gtest/gtest.h>

#include <chrono>

#include "plan/prices.hpp"
#include "plan/simulate.hpp"
#include "schedule/catalog.hpp"

namespace tutti::plan {
namespace {

double seconds(const Cluster& cluster, Collective collective, Algorithm algorithm, int ranks,
               double bytes) {
  const auto found = cost_of(cluster, collective, algorithm, {.ranks = ranks}, bytes);
  EXPECT_TRUE(found.has_value());
  return found ? found->seconds : 0;
}

TEST(CollectiveCost, is_what_the_simulation_says) {
  const Cluster cluster = *preset_cluster("summit");
  const CollectiveJob job{Collective::all_gather, Algorithm::ring, 48, 3e6};
  const auto found = cost_of(cluster, job.collective, job.algorithm, {.ranks = 48}, job.bytes);
  const auto simulated = simulate(cluster, {job});
  ASSERT_TRUE(found && simulated.ok());
  EXPECT_EQ(found->seconds, simulated->front().seconds);
  EXPECT_EQ(found->steps, 47);
  EXPECT_DOUBLE_EQ(found->bytes_per_rank, 47.0 / 48 * 3e6);
  EXPECT_DOUBLE_EQ(found->bus_bandwidth, 3e6 / found->seconds * 47 / 48);
}

TEST(CollectiveCost, the_choice_is_the_cheapest_row_and_never_below_the_bound) {
  for (const Cluster& cluster : preset_clusters())
    for (int i = 0; i < kCollectives; ++i)
      for (const int ranks : {2, 6, 8, 48})
        for (const int stride : {1, 4})
          for (const double bytes : {8.0, 65536.0, 1e8}) {
            const auto collective = static_cast<Collective>(i);
            const GroupSeats members{ranks, stride};
            const auto best = cheapest(cluster, collective, members, bytes);
            const double bound = lower_bound(cluster, collective, members, bytes);
            double least = 1e9;
            for (const auto& row : costs(cluster, collective, members, bytes)) {
              least = std::min(least, row.seconds);
              EXPECT_GE(row.seconds, bound * (1 - 1e-9))
                  << cluster.name << " " << to_string(collective) << " " << to_string(row.algorithm)
                  << " " << ranks << "/" << stride << " " << bytes;
            }
            EXPECT_EQ(best.seconds, least);
          }
}

// Ranks of a measured host meet and copy, which is faster than any message.
TEST(CollectiveCost, on_a_measured_host_nothing_is_below_the_bound) {
  Cluster cluster = *preset_cluster("h100-ib400");
  cluster.machine = tuner::built_in_machine();
  cluster.ranks_per_host = 8;
  for (int i = 0; i < kCollectives; ++i)
    for (const int ranks : {2, 3, 8})
      for (const double bytes : {8.0, 4096.0, 65536.0, 1e6, 1e8}) {
        const auto collective = static_cast<Collective>(i);
        const double bound = lower_bound(cluster, collective, {.ranks = ranks}, bytes);
        for (const auto& row : costs(cluster, collective, {.ranks = ranks}, bytes))
          EXPECT_GE(row.seconds, bound * (1 - 1e-9))
              << to_string(collective) << " " << to_string(row.algorithm) << " " << ranks << " "
              << bytes;
        EXPECT_GT(bound, 0);
      }
}

TEST(CollectiveCost, every_schedule_of_the_catalog_has_one) {
  const Cluster cluster = *preset_cluster("h100-ib400");
  for (const auto& entry : schedule::catalog())
    for (const int ranks : {64, 1024})
      EXPECT_TRUE(cost_of(cluster, entry.collective, entry.algorithm, {.ranks = ranks}, 1e6))
          << to_string(entry.collective) << " " << to_string(entry.algorithm);
}

TEST(CollectiveCost, a_row_that_does_not_exist_has_none) {
  const Cluster cluster = *preset_cluster("h100-ib400");
  EXPECT_FALSE(cost_of(cluster, Collective::broadcast, Algorithm::bruck, {.ranks = 8}, 8));
  EXPECT_FALSE(cost_of(cluster, Collective::all_gather, Algorithm::hypercube, {.ranks = 6}, 8));
  EXPECT_FALSE(cost_of(cluster, Collective::all_reduce, Algorithm::automatic, {.ranks = 16}, 8));
}

// Large groups are continued from small ones: held against the simulation of all ranks.
TEST(CollectiveCost, large_groups_cost_about_what_their_simulation_says) {
  for (const auto& [name, ranks] : {std::pair{"h100-ib400", 512}, {"summit", 576}})
    for (const auto& entry : schedule::catalog()) {
      if (entry.collective != Collective::all_reduce &&
          entry.collective != Collective::all_gather && entry.collective != Collective::reduce &&
          entry.collective != Collective::barrier)
        continue;
      const Cluster cluster = *preset_cluster(name);
      for (const double bytes : {8.0, 1e6, 1e9}) {
        const auto found =
            cost_of(cluster, entry.collective, entry.algorithm, {.ranks = ranks}, bytes);
        if (!found) continue;
        double simulated = 1e9;
        for (int shots = 1; shots <= 2; ++shots)
          simulated = std::min(simulated, simulate(cluster, {{.collective = entry.collective,
                                                              .algorithm = entry.algorithm,
                                                              .ranks = ranks,
                                                              .bytes = bytes,
                                                              .shots = shots}})
                                              ->front()
                                              .seconds);
        EXPECT_NEAR(found->seconds / simulated, 1, 0.3)
            << name << " " << to_string(entry.collective) << " " << to_string(entry.algorithm)
            << " " << bytes;
      }
    }
}

TEST(CollectiveCost, trees_beat_a_ring_by_two_orders_at_24576_ranks) {
  const Cluster summit = *preset_cluster("summit");
  const double ring = seconds(summit, Collective::all_reduce, Algorithm::ring, 24576, 8);
  const double tree =
      seconds(summit, Collective::all_reduce, Algorithm::double_binary_tree, 24576, 8);
  EXPECT_GT(ring / tree, 100);
  EXPECT_LT(ring / tree, 2000);
}

TEST(CollectiveCost, folding_switches_win_where_there_are_any) {
  const GroupSeats members{.ranks = 512};
  const auto with =
      cheapest(*preset_cluster("h100-ib400-sharp"), Collective::all_reduce, members, 1e8);
  const auto without =
      cheapest(*preset_cluster("h100-ib400"), Collective::all_reduce, members, 1e8);
  EXPECT_EQ(with.algorithm, Algorithm::in_network);
  EXPECT_LT(with.seconds, without.seconds);
}

TEST(CollectiveCost, one_rank_costs_nothing_and_a_message_what_its_wire_costs) {
  const Cluster h100 = *preset_cluster("h100-ib400");
  EXPECT_EQ(cheapest(h100, Collective::all_reduce, {.ranks = 1}, 1e9).seconds, 0);
  EXPECT_DOUBLE_EQ(send_seconds(h100, {.ranks = 2, .stride = 8}, 50e9), 1 + 4e-6);
  EXPECT_DOUBLE_EQ(send_seconds(h100, {.ranks = 2, .stride = 1}, 450e9), 1 + 1e-6);
}

TEST(CollectiveCost, messages_of_a_host_share_its_way_out) {
  const Cluster hosts = *preset_cluster("cpu-ethernet-1g");  // 4 ranks, 0.125 GB/s a host
  EXPECT_NEAR(send_seconds(hosts, {.ranks = 2, .stride = 4}, 125e6), 4, 1e-3);
  EXPECT_NEAR(send_seconds(hosts, {.ranks = 8, .stride = 1}, 125e6), 1,
              1e-3);  // one of four leaves
  EXPECT_LT(send_seconds(hosts, {.ranks = 4, .stride = 1}, 125e6), 0.1);
}

TEST(CollectiveCost, corrections_lie_between_measured_sizes_and_ranks) {
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

TEST(Prices, lie_near_what_a_size_costs_by_itself) {
  const Cluster cluster = *preset_cluster("h100-ib400");
  Prices prices(cluster);
  for (const Collective collective :
       {Collective::all_reduce, Collective::all_gather, Collective::reduce_scatter})
    for (const GroupSeats& members : {GroupSeats{8, 1}, {16, 4}, {64, 1}})
      for (const double bytes : {100.0, 3e3, 5e4, 7e5, 2e6, 9e7, 2e10}) {
        const double exact = cheapest(cluster, collective, members, bytes).seconds;
        EXPECT_NEAR(prices.collective(collective, members, bytes) / exact, 1, 0.1)
            << to_string(collective) << " " << members.ranks << " " << bytes;
      }
}

TEST(Prices, rise_with_size) {
  const Cluster cluster = *preset_cluster("gpu-ethernet-100g");
  Prices prices(cluster);
  double last = 0;
  for (double bytes = 1; bytes < 1e11; bytes *= 1.3) {
    const double now = prices.collective(Collective::all_reduce, {.ranks = 48}, bytes);
    EXPECT_GE(now, last) << bytes;
    last = now;
  }
}

// Generous: a search asks hundreds of thousands of times; this is only against a slip of an order.
TEST(Prices, that_are_known_are_cheap) {
  const Cluster cluster = *preset_cluster("h100-ib400");
  Prices prices(cluster);
  const auto start = std::chrono::steady_clock::now();
  double sum = 0;
  for (int i = 0; i < 100000; ++i)
    sum += prices.collective(Collective::all_reduce, {.ranks = 512}, 1e6 + i);
  const double took =
      std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  EXPECT_GT(sum, 0);
  EXPECT_LT(took, 5);
}

}  // namespace
}  // namespace tutti::plan
