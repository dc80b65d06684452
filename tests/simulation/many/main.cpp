// Many simulated runs, each from a seed of its own: bench/simulate --seeds 1000000
//
// Every seed runs under one kind of fault on one kind of link, in turn, so that a million of them
// cover all. The first that breaks a promise is told with its story and how to repeat it, and ends the
// program with 1. --bootstrap RANKS has so many ranks come together instead.
#include <fmt/format.h>
#include <malloc.h>

#include <chrono>
#include <cstdint>
#include <cstdlib>
#include <optional>
#include <random>
#include <string>

#include "simulation/bootstrap_world.hpp"
#include "simulation/oracle.hpp"
#include "simulation/recovery.hpp"

namespace tutti::simulation {
namespace {

using SteadyClock = std::chrono::steady_clock;

struct Options {
  std::uint64_t seeds = 10'000;
  std::uint64_t first = std::random_device()() | std::uint64_t{1} << 32;
  std::optional<Links> links;  // all kinds in turn
};

struct Broken {
  std::string test;
  std::vector<std::string> promises;
  std::string story;
};

// What one seed does: the faults in turn, and shrinking under fire as one more of them.
Broken run_one(std::uint64_t seed, std::optional<Links> only) {
  constexpr std::uint64_t kKinds = std::size(kFaults) + 1;
  const std::uint64_t kind = seed % kKinds;
  const Links links = only ? *only : kLinks[seed / kKinds % std::size(kLinks)];
  if (kind == std::size(kFaults)) {
    const Recovered outcome = Recovery(seed, links).run();
    return {"recovery", outcome.broken, outcome.story};
  }
  const Fault fault = kFaults[kind];
  const Outcome outcome =
      Simulation(seed, fault, can_happen(fault, links) ? links : Links::message).run();
  return {to_string(fault), broken_promises(outcome), outcome.story};
}

void tell(std::uint64_t seed, const Broken& broken) {
  fmt::print("seed {} breaks a promise ({})\n", seed, broken.test);
  for (const std::string& promise : broken.promises) fmt::print("  {}\n", promise);
  fmt::print(
      "{}\nto repeat it: TUTTI_SEED={} build/tests/simulation_tests\n"
      "to keep it:   echo '{} {}' >> tests/simulation/kept_seeds.txt\n",
      broken.story, seed, broken.test, seed);
}

int run_many(const Options& options) {
  fmt::print("{} seeds from {} on\n", options.seeds, options.first);
  const auto begin = SteadyClock::now();
  auto told = begin;
  for (std::uint64_t i = 0; i < options.seeds; ++i) {
    const std::uint64_t seed = options.first + i;
    if (const Broken broken = run_one(seed, options.links); !broken.promises.empty()) {
      tell(seed, broken);
      return 1;
    }
    const auto now = SteadyClock::now();
    if (now - told < std::chrono::seconds(10) && i + 1 < options.seeds) continue;
    told = now;
    const double seconds = std::chrono::duration<double>(now - begin).count();
    fmt::print("{} of {} seeds, {:.0f} a minute, no promise broken\n", i + 1, options.seeds,
               60 * static_cast<double>(i + 1) / seconds);
    std::fflush(stdout);
  }
  return 0;
}

int usage() {
  fmt::print(stderr,
             "usage: bench/simulate [--seeds N] [--first SEED] [--links WORD]\n"
             "       bench/simulate --bootstrap RANKS\n");
  return 2;
}

std::optional<Links> links_named(const std::string& word) {
  for (const Links links : kLinks)
    if (to_string(links) == word) return links;
  return std::nullopt;
}

// How so many ranks come together, in virtual time.
int run_bootstrap(int ranks) {
  const Bootstrapped outcome = simulate_bootstrap(ranks);
  if (outcome.broken.empty())
    fmt::print("{}\n", outcome.text());
  else
    fmt::print(stderr, "{} ranks did not come together: {}\n", ranks, outcome.broken);
  return outcome.broken.empty() ? 0 : 1;
}

int run(int count, char** words) {
  if (count == 3 && std::string_view(words[1]) == "--bootstrap") {
    const int ranks = std::atoi(words[2]);
    return ranks > 0 ? run_bootstrap(ranks) : usage();
  }
  Options options;
  if (count % 2 == 0) return usage();
  for (int i = 1; i < count; i += 2) {
    const std::string word = words[i];
    if (word == "--seeds")
      options.seeds = std::strtoull(words[i + 1], nullptr, 10);
    else if (word == "--first")
      options.first = std::strtoull(words[i + 1], nullptr, 10);
    else if (word == "--links")
      options.links = links_named(words[i + 1]);
    else
      return usage();
    if (word == "--links" && !options.links) return usage();
  }
  return options.seeds == 0 ? usage() : run_many(options);
}

}  // namespace
}  // namespace tutti::simulation

int main(int count, char** words) {
  // What one run frees the next one takes: without this a third of the time goes into fresh pages.
  mallopt(M_MMAP_THRESHOLD, 1 << 30);
  mallopt(M_TRIM_THRESHOLD, 1 << 30);
  return tutti::simulation::run(count, words);
}
