// Which schedules are offered, which is taken, and what a forced one is told.
#include "tuner/choose.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>

#include "schedule/catalog.hpp"
#include "topology/topology.hpp"
#include "tuner/built_in.hpp"

namespace tutti::tuner {
namespace {

using testing::HasSubstr;
using testing::Not;

// `ranks` ranks on hosts of `per_host` each.
std::vector<int> hosts(int ranks, int per_host) {
  std::vector<int> host_of;
  for (int rank = 0; rank < ranks; ++rank) host_of.push_back(rank / per_host);
  return host_of;
}

bool offers(const std::vector<Choice>& choices, Algorithm algorithm) {
  return std::any_of(choices.begin(), choices.end(),
                     [&](const Choice& choice) { return choice.algorithm == algorithm; });
}

bool can_be_uneven(Collective collective) {
  return schedule::find(collective, Algorithm::direct)->uneven;
}

// Every facts of interest, handed to `visit` with its list of hosts alive.
template <class Visit>
void for_each_call(Visit visit) {
  for (const int n : {1, 2, 3, 4, 8, 11, 24})
    for (const int per_host : {n, 1, 2})
      for (int c = 0; c < kCollectives; ++c)
        for (const std::size_t bytes : {0UL, 4UL, 16384UL, 1UL << 20})
          for (const auto order : {ReductionOrder::any, ReductionOrder::rank, ReductionOrder::tree})
            for (const bool uneven : {false, true}) {
              const auto collective = static_cast<Collective>(c);
              if (uneven && !can_be_uneven(collective)) continue;
              const std::vector<int> host_of = hosts(n, per_host);
              for (const bool symmetric : {false, true})
                if (!symmetric || per_host == n)
                  visit(CallFacts{collective, bytes, n, host_of, order, uneven, symmetric});
            }
}

TEST(Choose, candidates_are_never_empty_and_the_cheapest_comes_first) {
  for_each_call([](const CallFacts& facts) {
    const auto choices = candidates(facts);
    ASSERT_FALSE(choices.empty());
    // On one host direct comes first, and the order is that of both kinds of memory together.
    if (topology::host_count(facts.host_of) == 1) {
      ASSERT_EQ(choices.front().algorithm, Algorithm::direct);
    } else {
      ASSERT_TRUE(std::is_sorted(choices.begin(), choices.end(), [](const auto& a, const auto& b) {
        return a.predicted < b.predicted;
      }));
    }
    const Choice choice = choose(facts);
    ASSERT_EQ(choice.algorithm, choices.front().algorithm);
    ASSERT_EQ(choice.predicted, choices.front().predicted);
  });
}

TEST(Choose, every_candidate_serves_the_situation_and_can_be_built_for_every_rank) {
  for_each_call([](const CallFacts& facts) {
    for (const Choice& choice : candidates(facts)) {
      const schedule::Entry* entry = schedule::find(facts.collective, choice.algorithm);
      ASSERT_NE(entry, nullptr);
      if (facts.uneven) {
        ASSERT_TRUE(entry->uneven) << to_string(choice.algorithm);
      }
      schedule::Request request;
      request.collective = facts.collective;
      request.size = facts.ranks;
      request.rank = facts.ranks - 1;
      request.shots = choice.shots;
      request.host_of = facts.host_of;
      request.order = facts.order;
      ASSERT_TRUE(entry->keeps_order(request)) << to_string(choice.algorithm);
      ASSERT_TRUE(schedule::build(choice.algorithm, request).ok()) << to_string(choice.algorithm);
    }
  });
}

TEST(Choose, a_hierarchy_is_offered_only_where_some_host_has_company) {
  const auto offered = [](int ranks, int per_host) {
    const auto host_of = hosts(ranks, per_host);
    return offers(candidates({Collective::all_reduce, 1 << 20, ranks, host_of}),
                  Algorithm::hierarchical);
  };
  EXPECT_FALSE(offered(8, 8));
  EXPECT_FALSE(offered(8, 1));
  EXPECT_TRUE(offered(8, 4));
  EXPECT_TRUE(offered(5, 2));
}

// The size up to which direct all_reduce takes one shot; 0: never.
std::size_t one_shot_up_to(const Machine& machine, int ranks, int per_host) {
  const auto host_of = hosts(ranks, per_host);
  std::size_t last = 0;
  bool was_two = false;
  for (std::size_t bytes = 4; bytes <= 16 << 20; bytes *= 2) {
    const CallFacts facts{Collective::all_reduce, bytes, ranks, host_of};
    const int shots = choose_forced(facts, Algorithm::direct, machine)->shots;
    if (shots == 1) last = bytes;
    EXPECT_FALSE(shots == 1 && was_two) << "a second crossover at " << bytes;
    was_two |= shots == 2;
  }
  return last;
}

TEST(Choose, direct_all_reduce_takes_one_shot_when_small_and_two_when_large) {
  for (const int per_host : {4, 1}) {
    const std::size_t border = one_shot_up_to(built_in_machine(), 4, per_host);
    EXPECT_GE(border, 64U) << per_host;
    EXPECT_LE(border, 1U << 20) << per_host;
  }
}

TEST(Choose, the_crossover_moves_with_the_costs) {
  const std::size_t usual = one_shot_up_to(built_in_machine(), 4, 4);
  // Meetings that are dear are worth more folding.
  Machine slow_flags = built_in_machine();
  slow_flags.meet = *Curve::from_knots({{2, 20e-6}, {16, 20e-6}});
  EXPECT_GT(one_shot_up_to(slow_flags, 4, 4), usual);
  Machine slow_folds = built_in_machine();
  slow_folds.fold = *Curve::from_knots({{1024, 50e-6}});
  EXPECT_LT(one_shot_up_to(slow_folds, 4, 4), usual);
}

TEST(Choose, on_one_host_all_reduce_is_direct_in_either_order) {
  for (const int n : {2, 4, 8})
    for (const std::size_t bytes : {4UL, 65536UL, 64UL << 20})
      for (const auto order : {ReductionOrder::any, ReductionOrder::rank}) {
        const auto host_of = hosts(n, n);
        EXPECT_EQ(choose({Collective::all_reduce, bytes, n, host_of, order}).algorithm,
                  Algorithm::direct);
      }
}

// A wire that is slow against memory, as networks usually are.
Machine with_wire(double gigabytes_per_s) {
  Machine machine = built_in_machine();
  machine.tcp.bytes = *Curve::from_knots({{1 << 20, (1 << 20) / (gigabytes_per_s * 1e9)}});
  return machine;
}

TEST(Choose, long_messages_between_hosts_go_by_a_schedule_with_one_partner_at_a_time) {
  const auto host_of = hosts(8, 1);
  const Machine machine = with_wire(1.17);
  const Choice any = choose({Collective::all_reduce, 64 << 20, 8, host_of}, machine);
  EXPECT_NE(any.algorithm, Algorithm::direct);
  EXPECT_NE(any.algorithm, Algorithm::recursive_doubling);
  const Choice ordered =
      choose({Collective::all_reduce, 64 << 20, 8, host_of, ReductionOrder::rank}, machine);
  EXPECT_EQ(ordered.algorithm, Algorithm::pairwise);
}

// 4 hosts of 2 ranks at 1 Gbit/s: raw inputs of both would leave a host one by one.
TEST(Choose, long_folds_in_rank_order_go_from_host_to_host_where_hosts_have_several_ranks) {
  const Machine machine = with_wire(0.117);
  const auto pairs = hosts(8, 2);
  const auto alone = hosts(4, 1);
  for (const Collective collective : {Collective::all_reduce, Collective::reduce_scatter}) {
    const auto choice = [&](std::size_t bytes, const std::vector<int>& host_of, bool whole) {
      CallFacts facts{collective, bytes, static_cast<int>(host_of.size()), host_of,
                      ReductionOrder::rank};
      facts.whole_folds = whole;
      return choose(facts, machine).algorithm;
    };
    for (const std::size_t bytes : {1 << 20, 16 << 20, 64 << 20})
      EXPECT_EQ(choice(bytes, pairs, false), Algorithm::chain) << bytes;
    EXPECT_NE(choice(64, pairs, false), Algorithm::chain);
    EXPECT_NE(choice(16 << 20, alone, false), Algorithm::chain);
    EXPECT_NE(choice(16 << 20, pairs, true), Algorithm::chain);  // bf16: it would be rounded
  }
}

// What is reduced inside hosts first is a subtree of the whole only where they hold 2^k neighbours.
TEST(Choose, long_folds_in_tree_order_are_reduced_inside_hosts_that_are_subtrees) {
  const Machine machine = with_wire(0.117);
  for (const Collective collective : {Collective::all_reduce, Collective::reduce_scatter}) {
    const auto offered = [&](const std::vector<int>& host_of, bool whole) {
      CallFacts facts{collective, 16 << 20, static_cast<int>(host_of.size()), host_of,
                      ReductionOrder::tree};
      facts.whole_folds = whole;
      return candidates(facts, machine);
    };
    const auto chosen = offered(hosts(12, 4), false).front();
    EXPECT_EQ(chosen.algorithm, Algorithm::hierarchical) << to_string(collective);
    EXPECT_FALSE(offers(offered(hosts(12, 3), false), Algorithm::hierarchical));
    EXPECT_FALSE(offers(offered({0, 1, 0, 1}, false), Algorithm::hierarchical));
    EXPECT_FALSE(offers(offered(hosts(12, 4), true), Algorithm::hierarchical));  // bf16
    EXPECT_FALSE(offers(offered(hosts(12, 4), false), Algorithm::chain));
  }
}

TEST(Choose, several_ranks_a_host_with_long_messages_go_by_the_hierarchy) {
  const Machine machine = with_wire(0.117);
  const auto host_of = hosts(16, 8);
  const CallFacts facts{Collective::all_reduce, 16 << 20, 16, host_of};
  EXPECT_EQ(choose(facts, machine).algorithm, Algorithm::hierarchical)
      << describe(facts, candidates(facts, machine));
}

TEST(Choose, whatever_crosses_a_slow_wire_is_bundled_or_passed_on_once) {
  Machine machine = with_wire(0.117);
  machine.tcp.latency_s = 50e-6;
  machine.tcp.message_s = 5e-6;
  const auto host_of = hosts(8, 2);
  const auto choices = [&](Collective collective, std::size_t bytes) {
    const CallFacts facts{collective, bytes, 8, host_of};
    return candidates(facts, machine);
  };
  for (const std::size_t bytes : {64UL << 10, 256UL << 10})
    for (const Collective collective :
         {Collective::broadcast, Collective::reduce, Collective::all_reduce,
          Collective::reduce_scatter, Collective::all_gather})
      EXPECT_EQ(choices(collective, bytes).front().algorithm, Algorithm::hierarchical)
          << to_string(collective) << " " << bytes;
  EXPECT_EQ(choices(Collective::all_to_all, 4 << 10).front().algorithm, Algorithm::hierarchical);
}

TEST(Choose, rings_of_ranks_that_are_dealt_out_cost_what_those_of_neighbours_do) {
  const Machine machine = with_wire(0.117);
  std::vector<int> dealt;
  for (int rank = 0; rank < 8; ++rank) dealt.push_back(rank % 4);
  const auto time = [&](const std::vector<int>& host_of) {
    CallFacts facts{Collective::all_gather, 4 << 20, 8, host_of};
    const std::vector<int> walk = topology::walk_of(host_of);
    facts.walk = walk;
    return choose_forced(facts, Algorithm::ring, machine)->predicted;
  };
  EXPECT_EQ(time(dealt), time(hosts(8, 2)));
}

// What a table of another network costs, as the share by which the calls chosen by it take longer.
struct Regret {
  double mean = 0;
  double worst = 0;
};

Regret regret_of(double factor) {
  Regret regret;
  int calls = 0;
  for (const double wire : {0.025, 0.125, 1.0})
    for (const double truth : {wire * factor, wire / factor})
      for (const auto& [n, per_host] : {std::pair{2, 1}, {3, 1}, {4, 1}, {8, 1}, {8, 2}})
        for (const Collective collective :
             {Collective::all_reduce, Collective::reduce_scatter, Collective::all_gather,
              Collective::broadcast, Collective::all_to_all})
          for (std::size_t bytes = 1 << 10; bytes <= 64 << 20; bytes *= 4) {
            const auto host_of = hosts(n, per_host);
            const CallFacts facts{collective, bytes, n, host_of};
            const Machine machine = with_wire(truth);
            const auto chosen = choose(facts, with_wire(wire)).algorithm;
            const double best = in_seconds(choose(facts, machine).predicted);
            const double loss =
                in_seconds(choose_forced(facts, chosen, machine)->predicted) / best - 1;
            regret.mean += loss;
            regret.worst = std::max(regret.worst, loss);
            ++calls;
          }
  regret.mean /= calls;
  return regret;
}

// group/calibrate_links keeps a table until its network is 2.5 times as fast or slow.
TEST(Choose, a_network_within_a_factor_of_two_and_a_half_changes_little) {
  const Regret near = regret_of(2.5);
  const Regret far = regret_of(4);
  EXPECT_LT(near.mean, 0.01);
  EXPECT_LT(near.worst, 0.6);
  EXPECT_LT(near.mean, far.mean);
  RecordProperty("mean", std::to_string(near.mean) + " " + std::to_string(far.mean));
  RecordProperty("worst", std::to_string(near.worst) + " " + std::to_string(far.worst));
}

TEST(Choose, no_host_list_means_one_host) {
  const auto host_of = hosts(4, 4);
  const Choice listed = choose({Collective::all_gather, 4096, 4, host_of});
  const Choice empty = choose({Collective::all_gather, 4096, 4, {}});
  EXPECT_EQ(listed.algorithm, empty.algorithm);
  EXPECT_EQ(listed.predicted, empty.predicted);
}

TEST(Choose, automatic_is_not_a_force) {
  const auto host_of = hosts(4, 4);
  const CallFacts facts{Collective::broadcast, 4096, 4, host_of};
  const auto choice = choose_forced(facts, Algorithm::automatic);
  ASSERT_TRUE(choice.ok());
  EXPECT_EQ(choice->algorithm, choose(facts).algorithm);
}

TEST(Choose, a_forced_algorithm_is_taken_although_it_is_dearer) {
  const auto host_of = hosts(4, 4);
  const CallFacts facts{Collective::all_reduce, 4, 4, host_of};
  const auto ring = choose_forced(facts, Algorithm::ring);
  ASSERT_TRUE(ring.ok()) << ring.status().to_string();
  EXPECT_EQ(ring->algorithm, Algorithm::ring);
  EXPECT_GT(ring->predicted, choose(facts).predicted);
}

TEST(Choose, a_forced_algorithm_that_cannot_serve_is_refused_with_those_that_can) {
  const auto host_of = hosts(6, 6);
  const auto ordered =
      choose_forced({Collective::all_reduce, 4, 6, host_of, ReductionOrder::rank}, Algorithm::ring);
  ASSERT_FALSE(ordered.ok());
  EXPECT_EQ(ordered.status().code(), Code::invalid_argument);
  EXPECT_THAT(ordered.status().message(),
              HasSubstr("all_reduce by ring does not fold in rank order"));
  EXPECT_THAT(ordered.status().message(), HasSubstr("direct"));
  EXPECT_THAT(ordered.status().message(), HasSubstr("pairwise"));
  EXPECT_THAT(ordered.status().message(), Not(HasSubstr("halving_doubling")));

  const auto strange = choose_forced({Collective::broadcast, 4, 6, host_of}, Algorithm::bruck);
  ASSERT_FALSE(strange.ok());
  EXPECT_THAT(strange.status().message(), HasSubstr("broadcast by bruck does not exist"));
  EXPECT_THAT(strange.status().message(), HasSubstr("binomial_tree"));

  const auto six = choose_forced({Collective::all_gather, 4, 6, host_of}, Algorithm::hypercube);
  ASSERT_FALSE(six.ok());
  EXPECT_THAT(six.status().message(), HasSubstr("does not exist for these 6 ranks"));
}

TEST(Choose, whoever_cannot_do_uneven_parts_is_refused_for_them) {
  const auto host_of = hosts(6, 6);
  CallFacts facts{Collective::all_gather, 0, 6, host_of};
  facts.uneven = true;
  for (const Algorithm algorithm : schedule::algorithms_for(Collective::all_gather)) {
    const auto* entry = schedule::find(Collective::all_gather, algorithm);
    if (entry->uneven) continue;
    EXPECT_FALSE(choose_forced(facts, algorithm).ok()) << to_string(algorithm);
  }
  EXPECT_TRUE(choose_forced(facts, Algorithm::direct).ok());
}

// A schedule may exist for all ranks and not for the few that would stand for them: 320 ranks make a
// torus of 16 by 20, and 5 make none. Where one host has most of the few, they make no hierarchy.
TEST(Choose, schedules_that_few_ranks_do_not_have_are_played_with_all) {
  for (const Collective collective : {Collective::all_reduce, Collective::all_gather}) {
    const auto alone = hosts(320, 1);
    const auto torus = choose_forced({collective, 1 << 20, 320, alone}, Algorithm::torus_2d);
    ASSERT_TRUE(torus.ok());
    EXPECT_GT(torus->predicted.count(), 0);
    EXPECT_NE(torus->predicted, kUnknownTime);
    EXPECT_NE(choose({collective, 1 << 20, 320, alone}).predicted, kUnknownTime);
  }
  std::vector<int> uneven(64, 0);
  for (int host = 1; host <= 120; ++host) uneven.insert(uneven.end(), 8, host);
  const CallFacts facts{Collective::broadcast, 1 << 20, static_cast<int>(uneven.size()), uneven};
  EXPECT_TRUE(choose_forced(facts, Algorithm::hierarchical).ok());
}

// The engine sends them: parts that only two ranks know cannot be found in anybody's line.
TEST(Choose, parts_that_only_pairs_know_are_priced_as_messages) {
  const auto host_of = hosts(4, 4);
  CallFacts facts{Collective::all_to_all, 0, 4, host_of};
  EXPECT_TRUE(can_meet(facts));
  facts.uneven = true;
  EXPECT_FALSE(can_meet(facts));
  facts.collective = Collective::all_gather;  // all ranks know all parts
  EXPECT_TRUE(can_meet(facts));
}

// Under a millisecond in a release build on an idle machine; the bound is for debug builds under
// sanitizers on a busy one, and still finds a choice that walks all pairs of ranks.
TEST(Choose, choosing_among_64_ranks_is_quick) {
  const auto host_of = hosts(64, 8);
  auto best = std::chrono::steady_clock::duration::max();
  for (int round = 0; round < 10; ++round) {
    const auto start = std::chrono::steady_clock::now();
    const Choice choice = choose({Collective::all_reduce, 1 << 20, 64, host_of});
    best = std::min(best, std::chrono::steady_clock::now() - start);
    ASSERT_GT(choice.predicted.count(), 0);
  }
  EXPECT_LT(best, std::chrono::milliseconds(500));
}

}  // namespace
}  // namespace tutti::tuner
