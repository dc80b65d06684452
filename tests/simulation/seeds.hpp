// tests/simulation/seeds.hpp - which seeds a simulation runs with.
//
// A fixed row, so that a change is compared with what was; those that once failed, for ever
// (tests/simulation/kept_seeds.txt); and fresh ones in every run, whose first is printed.
// TUTTI_SEED=N runs that one alone.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace tutti::simulation {

// `name` says which lines of kept_seeds.txt count. Fewer under sanitizers (TUTTI_TEST_REDUCED).
std::vector<std::uint64_t> seeds(const std::string& name, std::uint64_t fixed);

}  // namespace tutti::simulation
