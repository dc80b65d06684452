#include "simulation/seeds.hpp"

#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <random>
#include <sstream>

namespace tutti::simulation {
namespace {

// Lines "NAME SEED", and comments that say what was wrong.
std::vector<std::uint64_t> kept(const std::string& name) {
  const char* root = std::getenv("TUTTI_SOURCE_DIR");  // ctest sets it; by hand: run from the root
  std::ifstream file(std::string(root ? root : ".") + "/tests/simulation/kept_seeds.txt");
  std::vector<std::uint64_t> found;
  for (std::string line; std::getline(file, line);) {
    std::istringstream words(line);
    std::string of;
    std::uint64_t seed = 0;
    if (words >> of >> seed && of == name) found.push_back(seed);
  }
  return found;
}

}  // namespace

std::vector<std::uint64_t> seeds(const std::string& name, std::uint64_t fixed) {
  if (const char* only = std::getenv("TUTTI_SEED")) return {std::strtoull(only, nullptr, 10)};
  if (std::getenv("TUTTI_TEST_REDUCED")) fixed /= 4;
  std::vector<std::uint64_t> chosen = kept(name);
  for (std::uint64_t seed = 1; seed <= fixed; ++seed) chosen.push_back(seed);
  const std::uint64_t fresh = std::random_device()() | std::uint64_t{1} << 32;
  for (std::uint64_t i = 0; i < fixed / 2; ++i) chosen.push_back(fresh + i);
  std::printf("%s: seeds 1 … %llu, and fresh ones from %llu on\n", name.c_str(),
              static_cast<unsigned long long>(fixed), static_cast<unsigned long long>(fresh));
  return chosen;
}

}  // namespace tutti::simulation
