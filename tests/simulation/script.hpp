// tests/simulation/script.hpp - what simulated ranks do: a list of operations, with known results.
#pragma once

#include <cstdint>
#include <random>
#include <span>
#include <string>
#include <vector>

#include "tutti/collectives.hpp"

namespace tutti::simulation {

// Where the buffers of a step lie.
enum class Memory : std::uint8_t {
  plain,   // where only their owner can reach them
  shared,  // in memory that all ranks have mapped
  mixed,   // either, by rank and side
};

// One operation, the same on all ranks.
struct Step {
  // Point to point: everybody sends to the next rank and receives from the one before.
  bool shift = false;
  Collective collective = Collective::barrier;
  Algorithm algorithm = Algorithm::automatic;
  std::size_t count = 0;  // elements per rank (of one block, where there are blocks)
  int root = 0;
  bool in_place = false;
  int group = 0;   // 0 or 1: two groups with the same members
  int after = -1;  // the step whose work it waits for, an earlier one; -1: none
  Memory memory = Memory::plain;
};

// `shared`: whether there is memory that all ranks have mapped.
std::vector<Step> random_script(std::mt19937_64& random, int ranks, int steps, bool shared);
// Lets every third step or so wait for an earlier one.
void add_dependencies(std::mt19937_64& random, std::vector<Step>& script);
std::string to_string(const Step& step);

// What one rank's buffers of all steps need at most, of memory that all ranks have mapped.
std::size_t shared_bytes(const std::vector<Step>& script, int ranks);

// Memory that all ranks have mapped, handed out from the front.
class Arena {
 public:
  Arena() = default;
  Arena(std::byte* data, std::size_t bytes) : data_(data), bytes_(bytes) {}
  // Null: it is used up.
  std::int64_t* take(std::size_t count);

 private:
  std::byte* data_ = nullptr;
  std::size_t bytes_ = 0;
};

// One rank's memory for one step.
struct Buffers {
  std::span<std::int64_t> input;
  std::span<std::int64_t> output;
  std::vector<std::int64_t> expected;  // of the buffer that holds the result
  std::vector<std::int64_t> kept;      // what the input must still be, where it holds no result
  bool has_result = false;
  bool result_in_input = false;                     // in place
  std::vector<std::int64_t> own_input, own_output;  // what is not shared
};
Buffers make_buffers(const Step& step, int index, int rank, int ranks, Arena& arena);
// Whether the result is there, to the bit, and an input that is no output is as it was.
bool is_right(const Buffers& buffers);

}  // namespace tutti::simulation
