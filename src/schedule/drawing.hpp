// schedule/drawing.hpp - a schedule as the pages read it: short JSON in which nothing is left to be
// known. Chunks are numbered cells, aliasing is resolved, each cell says what it holds at first and
// what it must hold at last; docs/formats/schedule.md, "For drawing".
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "schedule/schedule.hpp"

namespace tutti::schedule {

// Whose contributions: ranks first … first+count-1. None when count is 0.
struct Contributors {
  int first = 0;
  int count = 0;
  friend bool operator==(const Contributors&, const Contributors&) = default;
};

// One chunk of a rank's memory.
struct Cell {
  Space space = Space::output;
  std::uint32_t chunk = 0;
  std::uint64_t extent = 0;
  Contributors start;
  Contributors goal;  // none: the collective promises nothing of it
  friend bool operator==(const Cell&, const Cell&) = default;
};

// The cells of a rank: input, output, scratch. What is the same memory is one cell.
class Cells {
 public:
  explicit Cells(const Program& program);  // lent as long as this lives
  explicit Cells(const Program&& program) = delete;
  const std::vector<Cell>& all() const { return cells_; }
  std::size_t index(Space space, std::uint32_t chunk) const;

 private:
  const Program* program_;
  std::vector<std::vector<int>> numbers_;  // by space and chunk; -1: lies in another space
  std::vector<Cell> cells_;
};

// How many neighbouring extents are one thing to the eye: a chunk, a rank's block, what a rank
// sends.
std::uint64_t extents_per_colour(const Program& program);

// {"cells":[…],"ops":[…]} for each rank, as a list.
std::string print_drawing(std::span<const Program> programs);

}  // namespace tutti::schedule
