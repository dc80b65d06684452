// schedule/drawing.hpp - a schedule as the pages read it: short JSON in which nothing is left to be
// known. Chunks are numbered cells, aliasing is resolved, each cell says what it holds at first and
// what it must hold at last; docs/formats/schedule.md, "For drawing".
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "schedule/host/form.hpp"
#include "schedule/schedule.hpp"

namespace tutti::schedule {

// Whose contributions: ranks first … first+count-1. None when count is 0.
struct Contributors {
  int first = 0;
  int count = 0;
  friend bool operator==(const Contributors&, const Contributors&) = default;
};

// One chunk of a rank's memory, or a slot of what it shows.
struct Cell {
  enum class Where : std::uint8_t { input, output, scratch, window, result };
  Where where = Where::output;
  std::uint32_t chunk = 0;  // or slot
  std::uint64_t extent = 0;
  Contributors start;
  Contributors goal;  // none: the collective promises nothing of it

  // Whether it is the caller's, and not on the way to somebody.
  bool is_callers() const { return where == Where::input || where == Where::output; }
  friend bool operator==(const Cell&, const Cell&) = default;
};

// The cells of a rank: input, output, scratch; of a host form window and result. What is the same
// memory is one cell. The program or form must outlive them.
class Cells {
 public:
  explicit Cells(const Program& program);
  explicit Cells(const Program&& program) = delete;
  explicit Cells(const HostForm& form);
  explicit Cells(const HostForm&& form) = delete;
  const std::vector<Cell>& all() const { return cells_; }
  std::size_t index(Space space, std::uint32_t chunk) const;
  std::size_t index(const Spot& spot) const;

 private:
  const Program* program_;
  std::vector<std::vector<int>> numbers_;  // by space and chunk; -1: lies in another space
  std::vector<Cell> cells_;
  std::size_t first_slot_ = 0;  // the result's comes last
};

// How many neighbouring extents are one thing to the eye: a chunk, a rank's block, what a rank
// sends.
std::uint64_t extents_per_colour(const Program& program);

// {"cells":[…],"ops":[…]} for each rank, as a list.
std::string print_drawing(std::span<const Program> programs);
// {"cells":[…],"phases":[[…],…]} for each rank.
std::string print_drawing(std::span<const HostForm> forms);

}  // namespace tutti::schedule
