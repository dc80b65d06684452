// The estimate is read off the programs; where theory has a formula the two must agree.
#include "tuner/estimate.hpp"

#include <gtest/gtest.h>

#include <cmath>
#include <numeric>

#include "cost/simulate.hpp"
#include "tuner/built_in.hpp"
#include "tuner/host_time.hpp"

namespace tutti::tuner {
namespace {

std::vector<int> one_rank_per_host(int n) {
  std::vector<int> host_of(static_cast<std::size_t>(n));
  std::iota(host_of.begin(), host_of.end(), 0);
  return host_of;
}

double seconds(Collective collective, Algorithm algorithm, std::size_t bytes, int n,
               std::span<const int> host_of, const Machine& machine = built_in_machine()) {
  const auto* entry = schedule::find(collective, algorithm);
  EXPECT_NE(entry, nullptr);
  const CallFacts facts{collective, bytes, n, host_of};
  return static_cast<double>(estimate(*entry, facts, 2, machine).count()) * 1e-9;
}

// Over tcp, a rank on each host. Cores have nothing to do with bytes on their way, as the formulas
// have it; `segment_bytes` 0: nor are messages cut.
double over_tcp(Collective collective, Algorithm algorithm, std::size_t bytes, int n,
                double segment_bytes = 0) {
  const auto host_of = one_rank_per_host(n);
  Machine machine = built_in_machine();
  machine.tcp.byte_s = 0;
  cost::Site site = site_of(machine, {collective, bytes, n, host_of});
  site.segment_bytes = site.between.segment_bytes = segment_bytes;
  cost::SimulateOptions options;
  options.play.whole_messages = segment_bytes == 0;
  const auto answers = cost::simulate(site,
                                      {{.collective = collective,
                                        .algorithm = algorithm,
                                        .ranks = n,
                                        .bytes = static_cast<double>(bytes)}},
                                      options);
  EXPECT_TRUE(answers.ok());
  return answers->front().seconds;
}

constexpr double kAlpha = kTcpLatency + kTcpMessage;
double beta(double bytes) { return built_in_machine().tcp.bytes.share(1, bytes); }
double gamma(double bytes) { return built_in_machine().fold.share(1, bytes); }

TEST(Estimate, ring_all_reduce_costs_what_the_formula_says) {
  for (const int p : {2, 5, 8, 16, 24, 64})
    for (const double n : {4096.0, 1e6, 64e6}) {
      const double q = (p - 1.0) / p;
      const double formula = 2 * (p - 1) * kAlpha + 2 * q * n * beta(n) + q * n * gamma(n);
      const double found =
          over_tcp(Collective::all_reduce, Algorithm::ring, static_cast<std::size_t>(n), p);
      EXPECT_NEAR(found / formula, 1, 0.01) << p << " ranks, " << n << " bytes";
    }
}

TEST(Estimate, recursive_doubling_all_reduce_costs_what_the_formula_says) {
  for (const int p : {2, 8, 16, 64}) {
    constexpr double n = 65536;
    const double formula = std::log2(p) * (kAlpha + n * beta(n) + n * gamma(n));
    const double found = over_tcp(Collective::all_reduce, Algorithm::recursive_doubling, 65536, p);
    EXPECT_NEAR(found / formula, 1, 0.01) << p << " ranks";
  }
}

TEST(Estimate, binomial_broadcast_costs_what_the_formula_says) {
  for (const int p : {2, 8, 64}) {
    constexpr double n = 32768;
    const double formula = std::log2(p) * (kAlpha + n * beta(n));
    const double found = over_tcp(Collective::broadcast, Algorithm::binomial_tree, 32768, p);
    EXPECT_NEAR(found / formula, 1, 0.01) << p << " ranks";
  }
}

TEST(Estimate, ring_all_gather_costs_what_the_formula_says) {
  for (const int p : {2, 7, 16, 40}) {
    constexpr double n = 1e6;
    const double formula = (p - 1) * kAlpha + (p - 1.0) / p * n * beta(n);
    // A rank copies its own part while it sends it.
    const double own_part = n / p * built_in_machine().copy.share(1, n);
    const double found = over_tcp(Collective::all_gather, Algorithm::ring, 1'000'000, p);
    EXPECT_GE(found, formula * 0.999) << p << " ranks";
    EXPECT_LE(found, formula + own_part) << p << " ranks";
  }
}

TEST(Estimate, a_chain_takes_every_ranks_turn) {
  constexpr double n = 4096;
  for (const int p : {8, 16, 24, 64}) {
    const double formula = (p - 1) * (kAlpha + n * beta(n) + n * gamma(n));
    EXPECT_NEAR(over_tcp(Collective::scan, Algorithm::linear, 4096, p) / formula, 1, 0.05) << p;
  }
}

TEST(Estimate, more_bytes_never_cost_less) {
  for (const schedule::Entry& entry : schedule::catalog()) {
    const auto host_of = one_rank_per_host(8);
    const std::span<const int> nobody;
    for (const std::span<const int> hosts : {nobody, std::span<const int>(host_of)}) {
      if (entry.applies &&
          !entry.applies({.collective = entry.collective, .size = 8, .host_of = hosts}))
        continue;
      double last = 0;
      for (std::size_t bytes = 8; bytes <= 1UL << 30; bytes *= 4) {
        const double now = seconds(entry.collective, entry.algorithm, bytes, 8, hosts);
        // Ops that queue for a core in another order may save a little.
        ASSERT_GE(now, 0.8 * last)
            << to_string(entry.collective) << " " << to_string(entry.algorithm) << " at " << bytes;
        last = now;
      }
    }
  }
}

TEST(Estimate, ranks_of_one_host_share_its_wire) {
  // Each rank gets all parts of the other host: eight ranks pull eight times what one would.
  std::vector<int> two_hosts(16);
  for (int rank = 8; rank < 16; ++rank) two_hosts[rank] = 1;
  constexpr double n = 16 << 20;
  const double wire = 8 * n / 2 * beta(n);
  const double found = seconds(Collective::all_gather, Algorithm::direct, 16 << 20, 16, two_hosts);
  EXPECT_GE(found, wire);
  EXPECT_LE(found, 1.2 * wire);
}

TEST(Estimate, a_group_of_one_sends_nothing) {
  EXPECT_LT(seconds(Collective::all_reduce, Algorithm::ring, 4, 1, {}), 1e-7);
  EXPECT_EQ(seconds(Collective::barrier, Algorithm::direct, 0, 1, {}), 0);
}

// ---- in segments

TEST(Estimate, a_chain_of_segments_takes_one_message_and_a_segment_per_further_rank) {
  constexpr int p = 8;
  constexpr double n = 8 << 20;
  constexpr double s = 128 << 10;
  // What sets the pace: a segment goes out, and its core handles it twice, as it comes and goes.
  const double segment = s * beta(s) + kTcpMessage;
  const double formula = n / s * segment + (p - 2) * (segment + kTcpLatency) + kTcpLatency;
  const double found = over_tcp(Collective::broadcast, Algorithm::ring, 8 << 20, p, 128 << 10);
  EXPECT_NEAR(found / formula, 1, 0.35);
  EXPECT_LT(found, 0.75 * over_tcp(Collective::broadcast, Algorithm::ring, 8 << 20, p));
}

TEST(Estimate, segments_that_are_too_small_or_too_large_cost_more) {
  const auto with = [](double segment_bytes) {
    return over_tcp(Collective::scan, Algorithm::linear, 4 << 20, 8, segment_bytes);
  };
  EXPECT_LT(with(128 << 10), with(256));
  EXPECT_LT(with(128 << 10), with(4 << 20));
}

TEST(Estimate, two_trees_work_at_the_same_time) {
  // Each rank sends and receives about twice the bytes; one after the other it would be depth
  // times.
  constexpr double n = 16 << 20;
  const double found =
      over_tcp(Collective::all_reduce, Algorithm::double_binary_tree, 16 << 20, 8, 64 << 10);
  EXPECT_LT(found, 2 * 2 * n * beta(n));
  EXPECT_GE(found, 2 * 7.0 / 8 * n * beta(n));
}

TEST(Estimate, steps_that_do_not_depend_on_each_other_share_one_latency) {
  EXPECT_LT(over_tcp(Collective::all_to_all, Algorithm::pairwise, 8, 8),
            kTcpLatency + 15 * kTcpMessage);
}

TEST(Estimate, hosts_that_are_one_machine_share_its_cores) {
  const auto host_of = one_rank_per_host(8);
  const std::vector<int> together(8, 0);
  Machine machine = built_in_machine();
  machine.cores = 2;
  CallFacts facts{Collective::all_reduce, 8 << 20, 8, host_of};
  const auto* ring = schedule::find(Collective::all_reduce, Algorithm::ring);
  const auto in_seconds = [&] {
    return static_cast<double>(estimate(*ring, facts, 2, machine).count()) * 1e-9;
  };
  const double apart = in_seconds();
  facts.machine_of = together;
  const double crowded = in_seconds();
  // Each byte is sent, received, and folded in one half of the steps, by a quarter of a core.
  const double moved = 2 * 7.0 / 8 * (8 << 20);
  EXPECT_GE(crowded, 4 * moved * 2 * machine.tcp.byte_s);
  EXPECT_GT(crowded, 1.3 * apart);
}

// Groups of more ranks than are played are continued from smaller ones, on the first of their hosts.
TEST(Estimate, large_groups_cost_about_what_their_simulation_says) {
  const auto deal = [](int n, bool in_turn) {
    std::vector<int> host_of;
    for (int rank = 0; rank < n; ++rank) host_of.push_back(in_turn ? rank % (n / 8) : rank / 8);
    return host_of;
  };
  for (const bool in_turn : {false, true})
    for (const Algorithm algorithm :
         {Algorithm::ring, Algorithm::binomial_tree, Algorithm::direct}) {
      const auto host_of = deal(512, in_turn);
      const CallFacts facts{Collective::all_reduce, 1 << 20, 512, host_of};
      const cost::Site site = site_of(built_in_machine(), facts);
      const auto whole = cost::simulate(site, {{.collective = facts.collective,
                                                .algorithm = algorithm,
                                                .ranks = 512,
                                                .bytes = 1 << 20}});
      ASSERT_TRUE(whole.ok());
      const auto* entry = schedule::find(facts.collective, algorithm);
      const double found = static_cast<double>(estimate(*entry, facts, 2).count()) * 1e-9;
      EXPECT_NEAR(found / whole->front().seconds, 1, 0.3) << to_string(algorithm) << in_turn;
    }
}

// ---- on one host

double hosted(Collective collective, std::size_t bytes, int n, const Machine& machine,
              bool symmetric = false, int shots = 2) {
  CallFacts facts{collective, bytes, n, {}};
  facts.symmetric = symmetric;
  return *host_seconds(*schedule::find(collective, Algorithm::direct), facts, shots, machine);
}

TEST(HostTime, what_fits_into_the_flags_line_costs_a_meeting) {
  const Machine& machine = built_in_machine();
  for (const int n : {2, 4, 16}) {
    const double meet = kCallSeconds + machine.meet_seconds(n);
    EXPECT_DOUBLE_EQ(hosted(Collective::barrier, 0, n, machine), meet);
    EXPECT_NEAR(hosted(Collective::all_reduce, 4, n, machine, false, 1), meet, 0.1 * meet);
    EXPECT_GT(hosted(Collective::all_reduce, 4, n, machine, false, 2),
              meet + 0.9 * machine.meet_seconds(n));
  }
}

TEST(HostTime, symmetric_memory_saves_the_copies) {
  const Machine& machine = built_in_machine();
  for (const std::size_t bytes : {64UL << 10, 1UL << 20, 64UL << 20})
    for (const int n : {2, 8})
      EXPECT_LT(1.1 * hosted(Collective::all_reduce, bytes, n, machine, true),
                hosted(Collective::all_reduce, bytes, n, machine))
          << bytes;
}

TEST(HostTime, the_kernels_copy_is_priced_where_it_runs_and_only_there) {
  Machine dear = built_in_machine();
  dear.pull = *Curve::from_knots({{4096, 1.0}, {16 << 20, 4096.0}});  // seconds
  const auto gather = [](std::size_t bytes, const Machine& machine, bool symmetric = false) {
    return hosted(Collective::all_gather, bytes, 2, machine, symmetric);
  };
  EXPECT_GT(gather(1 << 20, dear), 1);
  EXPECT_LT(gather(1 << 10, dear), 1e-3);        // too short to be read
  EXPECT_LT(gather(1 << 20, dear, true), 1e-3);  // mapped
  dear.pull = Curve();                           // the kernel does not permit it
  EXPECT_LT(gather(1 << 20, dear), 1e-3);
}

// Fold-and-put on symmetric memory as a probe of nothing else measured it, on the machine of the
// built-in figures: ranks on 2 cores, bytes, microseconds. Within a factor of two, which the
// machine itself wanders by.
TEST(HostTime, agrees_with_what_was_measured_on_symmetric_memory) {
  Machine machine = built_in_machine();
  machine.cores = 2;
  machine.meet = *Curve::from_knots({{2, 0.27e-6}, {4, 1.5e-6}, {8, 4e-6}});
  struct Row {
    int ranks;
    std::size_t bytes;
    double us;
  };
  for (const Row& row : std::vector<Row>{{2, 64 << 10, 1.6},
                                         {2, 1 << 20, 27},
                                         {2, 16 << 20, 2100},
                                         {2, 256 << 20, 32000},
                                         {4, 64 << 10, 8},
                                         {4, 1 << 20, 104},
                                         {4, 16 << 20, 3300},
                                         {8, 64 << 10, 15},
                                         {8, 1 << 20, 236},
                                         {8, 16 << 20, 6000}}) {
    const double found =
        hosted(Collective::all_reduce, row.bytes, row.ranks, machine, true) * 1e6 / row.us;
    EXPECT_GT(found, 0.5) << row.ranks << " ranks, " << row.bytes << " bytes";
    EXPECT_LT(found, 2) << row.ranks << " ranks, " << row.bytes << " bytes";
  }
}

TEST(HostTime, ranks_beyond_the_cores_take_turns) {
  Machine machine = built_in_machine();
  machine.cores = 8;
  const double roomy = hosted(Collective::all_reduce, 4 << 20, 8, machine);
  machine.cores = 2;
  EXPECT_NEAR(hosted(Collective::all_reduce, 4 << 20, 8, machine) / roomy, 4, 0.5);
  // Where only the root has something to do, the others' cores are no help.
  machine.cores = 8;
  const double rooted = hosted(Collective::reduce, 4 << 20, 8, machine);
  machine.cores = 4;
  EXPECT_LT(hosted(Collective::reduce, 4 << 20, 8, machine), 1.25 * rooted);
}

TEST(Estimate, memory_links_are_cheaper_than_tcp) {
  for (const std::size_t bytes : {4UL, 1UL << 20})
    EXPECT_LT(seconds(Collective::all_reduce, Algorithm::ring, bytes, 4, {}),
              over_tcp(Collective::all_reduce, Algorithm::ring, bytes, 4));
}

}  // namespace
}  // namespace tutti::tuner
