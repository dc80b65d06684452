// The estimate is read off the programs; where theory has a formula the two must agree.
#include "tuner/estimate.hpp"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <numeric>

#include "tuner/cost.hpp"
#include "tuner/messages.hpp"
#include "tuner/stage.hpp"

namespace tutti::tuner {
namespace {

std::vector<int> one_rank_per_host(int n) {
  std::vector<int> host_of(static_cast<std::size_t>(n));
  std::iota(host_of.begin(), host_of.end(), 0);
  return host_of;
}

constexpr std::size_t kOneSegment = std::numeric_limits<std::size_t>::max();

double seconds(Collective collective, Algorithm algorithm, std::size_t bytes, int n,
               std::span<const int> host_of, const Machine& machine = built_in_machine()) {
  const auto* entry = schedule::find(collective, algorithm);
  EXPECT_NE(entry, nullptr);
  const Situation situation{collective, bytes, n, host_of};
  return static_cast<double>(estimate(*entry, situation, 2, machine).time.count()) * 1e-9;
}

// Without pipelining, as the formulas have it.
double seconds_over_tcp(Collective collective, Algorithm algorithm, std::size_t bytes, int n) {
  const auto host_of = one_rank_per_host(n);
  const auto* entry = schedule::find(collective, algorithm);
  const Situation situation{collective, bytes, n, host_of};
  return Messages(*entry, situation, 2, built_in_machine()).seconds(kOneSegment);
}

constexpr double kAlpha = kTcpLatency + kTcpMessage;
double beta(double bytes) { return built_in_machine().tcp.bytes.share(1, bytes); }
double gamma(double bytes) { return built_in_machine().fold.share(1, bytes); }

TEST(Estimate, ring_all_reduce_costs_what_the_formula_says_also_when_only_some_ranks_are_walked) {
  for (const int p : {2, 5, 8, 16, 24, 64})
    for (const double n : {4096.0, 1e6, 64e6}) {
      const double q = (p - 1.0) / p;
      const double formula = 2 * (p - 1) * kAlpha + 2 * q * n * beta(n) + q * n * gamma(n);
      const double found =
          seconds_over_tcp(Collective::all_reduce, Algorithm::ring, static_cast<std::size_t>(n), p);
      EXPECT_NEAR(found / formula, 1, 0.01) << p << " ranks, " << n << " bytes";
    }
}

TEST(Estimate, recursive_doubling_all_reduce_costs_what_the_formula_says) {
  for (const int p : {2, 8, 16, 64}) {
    constexpr double n = 65536;
    const double formula = std::log2(p) * (kAlpha + n * beta(n) + n * gamma(n));
    const double found =
        seconds_over_tcp(Collective::all_reduce, Algorithm::recursive_doubling, 65536, p);
    EXPECT_NEAR(found / formula, 1, 0.01) << p << " ranks";
  }
}

TEST(Estimate, binomial_broadcast_costs_what_the_formula_says) {
  for (const int p : {2, 3, 8, 13, 64}) {
    constexpr double n = 32768;
    const double formula = std::ceil(std::log2(p)) * (kAlpha + n * beta(n));
    const double found =
        seconds_over_tcp(Collective::broadcast, Algorithm::binomial_tree, 32768, p);
    EXPECT_NEAR(found / formula, 1, 0.01) << p << " ranks";
  }
}

TEST(Estimate, ring_all_gather_costs_what_the_formula_says) {
  for (const int p : {2, 7, 16, 40}) {
    constexpr double n = 1e6;
    const double own_part = n / p * built_in_machine().copy.share(1, n);
    const double formula = (p - 1) * kAlpha + (p - 1.0) / p * n * beta(n) + own_part;
    const double found = seconds_over_tcp(Collective::all_gather, Algorithm::ring, 1'000'000, p);
    EXPECT_NEAR(found / formula, 1, 0.01) << p << " ranks";
  }
}

TEST(Estimate, a_chain_takes_every_ranks_turn_also_when_only_some_ranks_are_walked) {
  constexpr double n = 4096;
  for (const int p : {8, 16, 24, 64}) {
    const double formula = (p - 1) * (kAlpha + n * beta(n) + n * gamma(n));
    // The few ranks that are walked have lighter turns among theirs, at the ends of the chain.
    const double tolerance = p <= 16 ? 0.05 : 0.25;
    const double found = seconds_over_tcp(Collective::scan, Algorithm::linear, 4096, p);
    EXPECT_NEAR(found / formula, 1, tolerance) << p << " ranks";
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
        ASSERT_GE(now, last) << to_string(entry.collective) << " " << to_string(entry.algorithm)
                             << " at " << bytes;
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

TEST(Estimate, memory_links_are_cheaper_than_tcp) {
  for (const std::size_t bytes : {4UL, 1UL << 20})
    EXPECT_LT(seconds(Collective::all_reduce, Algorithm::ring, bytes, 4, {}),
              seconds_over_tcp(Collective::all_reduce, Algorithm::ring, bytes, 4));
}

}  // namespace
}  // namespace tutti::tuner
