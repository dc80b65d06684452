// schedule/build/grid.hpp - collectives over ranks that stand in rows and columns of equal length.
#pragma once

#include <vector>

#include "schedule/build/builders.hpp"

namespace tutti::schedule::builders {

// Where one rank stands: its row and its column, as lists of ranks, and its place in each.
struct Grid {
  std::vector<int> row, column;
  int place_in_row = 0, place_in_column = 0;
};

// How the rows work, and the columns: those in as many steps as a ring. `steps`: of either one of a row.
struct GridAlgorithm {
  Program (*reduce_scatter)(const Request&);
  Program (*all_gather)(const Request&);
  Step steps;
  Program (*columns)(const Request&) = ring_all_reduce;
};

// Rows reduce_scatter, columns all_reduce the slices, rows all_gather:
//
//      rows                     columns                  rows
//      0 - 1    slices a b      0   1                    0 - 1
//                               | a | b
//      2 - 3    slices a b      2   3                    2 - 3
//
// Every column carries another slice, so that all ranks work in every phase.
Program grid_all_reduce(const Request& request, Algorithm algorithm, const Grid& grid,
                        const GridAlgorithm& rows);

}  // namespace tutti::schedule::builders
