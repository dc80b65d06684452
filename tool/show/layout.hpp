// tool/show/layout.hpp - where to draw the ranks of a schedule, so that its messages make a shape
// that is known: a ring, a tree, a cube, a grid, hosts. Read off the programs, not off a name,
// wherever they show it.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "schedule/schedule.hpp"

namespace tutti::tool {

struct Layout {
  // ring, star, tree, two_trees, cube, grid, hosts
  std::string kind = "ring";
  // Of each rank, within 0 … 1; y grows downwards.
  std::vector<double> x, y;
  // Ranks of each host where that matters; else empty.
  std::vector<std::vector<int>> hosts;
};

Layout lay_out(std::span<const schedule::Program> programs, std::span<const int> host_of);
// Of ranks that share a host and meet in its memory, where everybody is next to everybody.
Layout lay_out_on_one_host(int ranks);

}  // namespace tutti::tool
