// tests/simulation/script.hpp - what simulated ranks do: a list of operations, with known results.
#pragma once

#include <cstdint>
#include <random>
#include <string>
#include <vector>

#include "tutti/collectives.hpp"

namespace tutti::simulation {

// One operation, the same on all ranks.
struct Step {
  bool shift =
      false;  // point to point: everybody sends to the next rank and receives from the one before
  Collective collective = Collective::barrier;
  Algorithm algorithm = Algorithm::automatic;
  std::size_t count = 0;  // elements per rank (of one block, where there are blocks)
  int root = 0;
  bool in_place = false;
  int group = 0;  // 0 or 1: two groups with the same members
};

std::vector<Step> random_script(std::mt19937_64& random, int ranks, int steps);
std::string to_string(const Step& step);

// One rank's memory for one step.
struct Buffers {
  std::vector<std::int64_t> input;
  std::vector<std::int64_t> output;
  std::vector<std::int64_t> expected;  // of the buffer that holds the result
  bool result_in_input = false;        // in place
};
Buffers make_buffers(const Step& step, int index, int rank, int ranks);
// Whether the result is there, to the bit.
bool is_right(const Buffers& buffers);

}  // namespace tutti::simulation
