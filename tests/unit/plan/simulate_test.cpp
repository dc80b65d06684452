#include "plan/simulate.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <bit>
#include <numeric>

#include "closed_forms.hpp"
#include "plan/collective_cost.hpp"
#include "schedule/catalog.hpp"
#include "schedule/passes.hpp"

namespace tutti::plan {
namespace {

using testing::HasSubstr;

// α = 10 µs, o = 1 µs, β = 1 ns/B, γ = 0.25 ns/B; copies cost nothing.
Cluster flat() {
  Cluster cluster;
  cluster.name = "flat";
  cluster.fabric = Fabric::flat;
  cluster.between = {10e-6, 1e-6, 1e9};
  cluster.processor.reduce_bandwidth = 4e9;
  return cluster;
}

SimulateOptions whole_messages() {
  SimulateOptions options;
  options.play.whole_messages = true;
  return options;
}

Simulated one(const Cluster& cluster, const CollectiveJob& job,
              const SimulateOptions& options = {}) {
  const auto answer = simulate(cluster, {job}, options);
  EXPECT_TRUE(answer.ok()) << answer.status().message();
  return answer.ok() ? answer->front() : Simulated{};
}

bool exists(const schedule::Entry& entry, int ranks, const std::vector<int>& host_of) {
  schedule::Request request;
  request.collective = entry.collective;
  request.size = ranks;
  request.host_of = host_of;
  return !entry.applies || entry.applies(request);
}

// ---- by hand

TEST(Simulate, a_message_takes_its_latency_and_its_bytes) {
  const CollectiveJob job{.collective = Collective::broadcast,
                          .algorithm = Algorithm::linear,
                          .ranks = 2,
                          .bytes = 1e6};
  EXPECT_NEAR(one(flat(), job, whole_messages()).seconds, 10e-6 + 1e-3, 1e-12);
}

TEST(Simulate, a_roots_messages_queue_up_in_its_way_out) {
  // The third of three begins after two times 1 ms.
  const CollectiveJob job{.collective = Collective::broadcast,
                          .algorithm = Algorithm::linear,
                          .ranks = 4,
                          .bytes = 1e6};
  EXPECT_NEAR(one(flat(), job, whole_messages()).seconds, 3e-3 + 10e-6, 1e-12);
  // Without bytes a core begins one every microsecond.
  const CollectiveJob empty{
      .collective = Collective::broadcast, .algorithm = Algorithm::linear, .ranks = 4, .bytes = 0};
  EXPECT_NEAR(one(flat(), empty).seconds, 2e-6 + 10e-6, 1e-12);
}

TEST(Simulate, a_hosts_ways_are_shared) {
  Cluster cluster = *preset_cluster("cpu-ethernet-1g");  // 4 ranks and 125 MB/s a host
  // Each rank of host 0 sends 1 MB to one of host 1: alone 8 ms, together 32 ms.
  const CollectiveJob alone{.collective = Collective::broadcast,
                            .algorithm = Algorithm::linear,
                            .ranks = 2,
                            .bytes = 1e6,
                            .stride = 4};
  EXPECT_NEAR(one(cluster, alone, whole_messages()).seconds, 8e-3 + 30e-6, 1e-9);
  std::vector<CollectiveJob> four;
  for (int seat = 0; seat < 4; ++seat) {
    four.push_back(alone);
    four.back().first_seat = seat;
  }
  const auto together = simulate(cluster, four, whole_messages());
  ASSERT_TRUE(together.ok());
  double last = 0;
  for (const auto& each : *together) last = std::max(last, each.seconds);
  EXPECT_NEAR(last, 32e-3 + 30e-6, 1e-9);
}

TEST(Simulate, uplinks_carry_what_oversubscription_leaves) {
  Cluster cluster = flat();
  cluster.fabric = Fabric::fat_tree;
  cluster.hosts_per_switch = 4;
  cluster.oversubscription = 4;  // four hosts share 1 GB/s
  std::vector<CollectiveJob> jobs;
  for (int seat = 0; seat < 4; ++seat)
    jobs.push_back({.collective = Collective::broadcast,
                    .algorithm = Algorithm::linear,
                    .ranks = 2,
                    .bytes = 1e6,
                    .first_seat = seat,
                    .stride = 4});
  const auto together = simulate(cluster, jobs, whole_messages());
  ASSERT_TRUE(together.ok());
  double last = 0;
  for (const auto& each : *together) last = std::max(last, each.seconds);
  EXPECT_NEAR(last, 4e-3 + 10e-6, 1e-9);
}

TEST(Simulate, a_torus_counts_hops_and_shares_links) {
  Cluster cluster = flat();
  cluster.fabric = Fabric::torus_2d;
  // 16 hosts are 4 x 4: from 0 to 5 it is one hop east and one south; from 0 to 3 one hop west.
  const auto message = [&](int stride) {
    const CollectiveJob job{.collective = Collective::broadcast,
                            .algorithm = Algorithm::linear,
                            .ranks = 2,
                            .bytes = 1e6,
                            .stride = stride};
    const CollectiveJob far_away{.collective = Collective::barrier,
                                 .algorithm = Algorithm::linear,
                                 .ranks = 1,
                                 .first_seat = 15};
    return (*simulate(cluster, {job, far_away}, whole_messages()))[0].seconds;
  };
  EXPECT_NEAR(message(5), 1e-3 + 20e-6, 1e-12);
  EXPECT_NEAR(message(3), 1e-3 + 10e-6, 1e-12);
  // 0 -> 2 and 1 -> 2 both go over the link from 1 to 2.
  const CollectiveJob a{.collective = Collective::broadcast,
                        .algorithm = Algorithm::linear,
                        .ranks = 2,
                        .bytes = 1e6,
                        .stride = 2};
  CollectiveJob b = a;
  b.first_seat = 1;
  b.stride = 1;
  CollectiveJob c = a;
  c.collective = Collective::barrier;
  c.ranks = 1;
  c.first_seat = 15;
  const auto both = simulate(cluster, {a, b, c}, whole_messages());
  ASSERT_TRUE(both.ok());
  EXPECT_NEAR(std::max((*both)[0].seconds, (*both)[1].seconds), 2e-3 + 20e-6, 11e-6);
}

TEST(Simulate, a_job_that_starts_later_is_counted_from_its_start) {
  CollectiveJob first{.algorithm = Algorithm::ring, .ranks = 8, .bytes = 8e6};
  CollectiveJob second = first;
  second.start = 1;
  const double alone = one(flat(), first).seconds;
  const auto apart = simulate(flat(), {first, second});
  ASSERT_TRUE(apart.ok());
  EXPECT_NEAR((*apart)[0].seconds, alone, 1e-12);
  EXPECT_NEAR((*apart)[1].seconds, alone, 1e-12);
  second.start = 0;
  const auto at_once = simulate(flat(), {first, second});
  EXPECT_GT((*at_once)[1].seconds, 1.8 * alone);  // they share every wire
  EXPECT_LT((*at_once)[1].seconds, 2.05 * alone);
}

TEST(Simulate, segments_let_a_chain_overlap) {
  const CollectiveJob job{
      .collective = Collective::scan, .algorithm = Algorithm::linear, .ranks = 8, .bytes = 8 << 20};
  const double whole = one(flat(), job, whole_messages()).seconds;
  const double cut = one(flat(), job).seconds;
  EXPECT_LT(cut, whole / 3);
  EXPECT_GT(cut, (8 << 20) / 1e9);
}

TEST(Simulate, folding_switches_take_one_way_up_and_one_down) {
  Cluster cluster = flat();
  cluster.in_network_reduction = true;
  const CollectiveJob job{.algorithm = Algorithm::in_network, .ranks = 16, .bytes = 1e6};
  const auto answer = one(cluster, job, whole_messages());
  // Whole messages: up and down one after the other; in segments at once.
  EXPECT_NEAR(answer.seconds, 2 * (10e-6 + 1e-3) - 1e-6, 2e-6);
  EXPECT_NEAR(one(cluster, job).seconds, 20e-6 + 1e-3, 0.2e-3);
  EXPECT_DOUBLE_EQ(answer.bytes_per_rank, 1e6);
}

// Without anything said of the cluster's own: `tutti switch`, whose link is wide enough for all.
TEST(Simulate, one_switch_that_all_reach_takes_the_bytes_up_and_down_at_once) {
  const CollectiveJob by_switch{.algorithm = Algorithm::in_network, .ranks = 4, .bytes = 16e6};
  const CollectiveJob ring{.algorithm = Algorithm::ring, .ranks = 4, .bytes = 16e6};
  const auto answer = one(flat(), by_switch);
  EXPECT_DOUBLE_EQ(answer.bytes_per_rank, 16e6);
  EXPECT_EQ(answer.messages, 4u);
  EXPECT_NEAR(one(flat(), ring).seconds / answer.seconds, 1.5, 0.05);
}

// ---- against the closed forms

TEST(Simulate, agrees_with_the_closed_forms_where_they_are_exact) {
  const Textbook textbook{10e-6, 1e-6, 1e-9, 0.25e-9};
  for (const ClosedForm& form : textbook.forms())
    for (const int ranks : {2, 3, 4, 5, 8, 13, 16, 48, 64}) {
      if (!form.any_number && !std::has_single_bit(static_cast<unsigned>(ranks))) continue;
      for (const double bytes : {0.0, 4096.0, 1e6}) {
        const CollectiveJob job{form.collective, form.algorithm, ranks, bytes};
        EXPECT_NEAR(one(flat(), job, whole_messages()).seconds / form.seconds(ranks, bytes), 1,
                    1e-9)
            << to_string(form.collective) << " " << to_string(form.algorithm) << " " << ranks << " "
            << bytes;
      }
    }
}

// ---- symmetry

TEST(Simulate, one_rank_for_many_gives_the_same_bits_as_all_of_them) {
  SimulateOptions full;
  full.use_symmetry = false;
  Cluster leaves = *preset_cluster("gpu-ethernet-100g");
  leaves.ranks_per_host = 2;
  leaves.hosts_per_switch = 3;
  const Cluster clusters[] = {flat(), *preset_cluster("h100-ib400"), *preset_cluster("summit"),
                              leaves};
  int used = 0;
  for (const Cluster& cluster : clusters)
    for (const auto& entry : schedule::catalog())
      for (const int ranks : {8, 12, 16, 24, 48}) {
        std::vector<int> host_of;
        for (int rank = 0; rank < ranks; ++rank) host_of.push_back(rank / cluster.ranks_per_host);
        if (!exists(entry, ranks, host_of)) continue;
        for (const double bytes : {8.0, 3e6}) {
          const CollectiveJob job{entry.collective, entry.algorithm, ranks, bytes};
          const Simulated few = one(cluster, job);
          const Simulated all = one(cluster, job, full);
          used += few.simulated_ranks < ranks;
          EXPECT_EQ(few.seconds, all.seconds)
              << cluster.name << " " << to_string(entry.collective) << " "
              << to_string(entry.algorithm) << " " << ranks << " " << bytes;
          EXPECT_EQ(few.messages, all.messages);
          EXPECT_EQ(few.steps, all.steps);
          EXPECT_EQ(few.bytes_per_rank, all.bytes_per_rank);
        }
      }
  EXPECT_GT(used, 200);
}

TEST(Simulate, schedules_with_a_step_per_rank_have_symmetry_to_use) {
  const Cluster cluster = *preset_cluster("summit");
  for (const auto& [collective, algorithm] : {std::pair{Collective::all_reduce, Algorithm::ring},
                                              {Collective::all_reduce, Algorithm::direct},
                                              {Collective::all_reduce, Algorithm::pairwise},
                                              {Collective::all_reduce, Algorithm::torus_2d},
                                              {Collective::all_reduce, Algorithm::hierarchical},
                                              {Collective::all_gather, Algorithm::ring},
                                              {Collective::reduce_scatter, Algorithm::pairwise},
                                              {Collective::all_to_all, Algorithm::bruck},
                                              {Collective::all_to_all, Algorithm::direct}})
    EXPECT_EQ(one(cluster, {collective, algorithm, 96, 8}).simulated_ranks, 6)
        << to_string(collective) << " " << to_string(algorithm);
}

// ---- size, determinism, errors

TEST(Simulate, equal_arguments_give_equal_bits_and_seeds_matter) {
  const CollectiveJob job{.algorithm = Algorithm::double_binary_tree, .ranks = 37, .bytes = 1e6};
  SimulateOptions noisy;
  noisy.play.jitter = 0.5;
  const double first = one(flat(), job, noisy).seconds;
  EXPECT_EQ(one(flat(), job, noisy).seconds, first);
  EXPECT_GT(first, one(flat(), job).seconds);
  noisy.play.seed = 2;
  EXPECT_NE(one(flat(), job, noisy).seconds, first);
}

TEST(Simulate, a_ring_of_1024_ranks_is_simulated_in_a_moment) {
  const CollectiveJob job{.algorithm = Algorithm::ring, .ranks = 1024, .bytes = 64e6};
  const auto answer = one(*preset_cluster("h100-ib400"), job);
  EXPECT_EQ(answer.simulated_ranks, 8);
  EXPECT_EQ(answer.steps, 2046);
  EXPECT_EQ(answer.messages, 1024U * 2046U);
}

Result<Simulated> run_programs(const std::vector<schedule::Program>& programs, double bytes) {
  const auto site = site_of(flat(), static_cast<int>(programs.size()));
  std::vector<int> seats(programs.size());
  std::iota(seats.begin(), seats.end(), 0);
  auto made = cost::Simulation::of_programs(site, programs, seats, bytes, whole_messages());
  if (!made.ok()) return made.status();
  const auto answers = made->run(site);
  if (!answers.ok()) return answers.status();
  return answers->front();
}

TEST(Simulate, fused_programs_run_too) {
  for (const Algorithm algorithm : {Algorithm::ring, Algorithm::direct, Algorithm::binomial_tree}) {
    auto programs =
        *schedule::build_all(algorithm, {.collective = Collective::all_reduce, .size = 6});
    const auto plain = run_programs(programs, 6e6);
    for (auto& program : programs) program = schedule::fuse_folds(std::move(program));
    const auto fused = run_programs(programs, 6e6);
    ASSERT_TRUE(plain.ok() && fused.ok());
    EXPECT_EQ(plain->messages, fused->messages);
    EXPECT_NEAR(fused->seconds / plain->seconds, 1, 0.3);
  }
}

TEST(Simulate, a_receive_without_a_send_is_refused) {
  auto programs =
      *schedule::build_all(Algorithm::ring, {.collective = Collective::all_gather, .size = 3});
  std::erase_if(programs[1].ops, [](const auto& op) { return op.kind == schedule::OpKind::send; });
  const auto answer = run_programs(programs, 3e3);
  ASSERT_FALSE(answer.ok());
  EXPECT_THAT(answer.status().message(), HasSubstr("has no other end"));
}

TEST(Simulate, programs_that_wait_for_each_other_are_refused) {
  // Each sends only what it has received from the other.
  auto programs =
      *schedule::build_all(Algorithm::linear, {.collective = Collective::broadcast, .size = 2});
  for (int rank = 0; rank < 2; ++rank) {
    auto& ops = programs[static_cast<std::size_t>(rank)].ops;
    const schedule::Region chunk{schedule::Space::output, 0, 1};
    ops = {{schedule::OpKind::recv, 0, 1 - rank, chunk, {}, {}, false},
           {schedule::OpKind::send, 0, 1 - rank, {}, chunk, {}, false}};
  }
  const auto answer = run_programs(programs, 3e3);
  ASSERT_FALSE(answer.ok());
  EXPECT_THAT(answer.status().message(), HasSubstr("wait for each other for ever"));
}

TEST(Simulate, what_does_not_fit_is_refused) {
  const auto refused = [](const Cluster& cluster, const CollectiveJob& job,
                          SimulateOptions options = {}) {
    const auto answer = simulate(cluster, {job}, options);
    EXPECT_FALSE(answer.ok());
    return answer.ok() ? "" : answer.status().message();
  };
  EXPECT_THAT(refused(*preset_cluster("tpu-v5e"), {.ranks = 257}), HasSubstr("do not fit"));
  EXPECT_THAT(refused(flat(), {.collective = Collective::all_gather,
                               .algorithm = Algorithm::hypercube,
                               .ranks = 6}),
              HasSubstr("hypercube"));
  Cluster folding = flat();
  folding.in_network_reduction = true;
  EXPECT_THAT(refused(folding, {.collective = Collective::broadcast,
                                .algorithm = Algorithm::in_network,
                                .ranks = 6}),
              HasSubstr("do not fold"));
  SimulateOptions small;
  small.most_ops = 100;
  EXPECT_THAT(
      refused(flat(), {.collective = Collective::scan, .algorithm = Algorithm::direct, .ranks = 64},
              small),
      HasSubstr("more than 100 ops"));
}

}  // namespace
}  // namespace tutti::plan
