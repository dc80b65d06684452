// torus_2d - n = a·b ranks as a rows of b, as square as can be; a ring in each row, then in each
// column. 2(b-1) + 2(a-1) steps instead of the ring's 2(ab-1), at the ring's number of bytes.
//
//      0 -> 1 -> 2 ->)       all_reduce: rows reduce_scatter, columns all_reduce, rows all_gather
//      |    |    |           all_gather: rows first, then the columns pass whole rows
//      3 -> 4 -> 5 ->)
//      v    v    v
#include "schedule/build/builders.hpp"
#include "schedule/compose.hpp"
#include "topology/topology.hpp"

namespace tutti::schedule::builders {
namespace {

// Where one rank stands: its row and its column, as lists of ranks, and its place in each.
struct Grid {
  std::vector<int> row, column;
  int place_in_row = 0, place_in_column = 0;
};

bool makes_torus(const Request& request) { return topology::near_square(request.size).rows > 1; }

Grid stand(const Request& request) {
  const auto [a, b] = topology::near_square(request.size);
  Grid grid;
  grid.place_in_row = request.rank % b;
  grid.place_in_column = request.rank / b;
  for (int j = 0; j < b; ++j) grid.row.push_back(grid.place_in_column * b + j);
  for (int i = 0; i < a; ++i) grid.column.push_back(i * b + grid.place_in_row);
  return grid;
}

// Rows reduce_scatter, columns all_reduce the slices, rows all_gather:
//
//      rows                     columns                  rows
//      0 - 1    slices a b      0   1                    0 - 1
//                               | a | b
//      2 - 3    slices a b      2   3                    2 - 3
//
// Every column carries another slice, so that all ranks work in every phase.
Program torus_2d_all_reduce(const Request& request) {
  const Grid grid = stand(request);
  const auto a = static_cast<Chunk>(grid.column.size()), b = static_cast<Chunk>(grid.row.size());
  const auto slice = static_cast<Chunk>(grid.place_in_row) * a;
  Draft whole(request, Algorithm::torus_2d, a * b);

  Request part{Collective::reduce_scatter,
               static_cast<int>(b),
               grid.place_in_row,
               0,
               request.in_place,
               2,
               {}};
  Placement placement{.ranks = grid.row, .input = input(0), .output = output(slice), .scale = a};
  placement.finish = false;
  append(whole.program(), ring_reduce_scatter(part), placement);

  part = {Collective::all_reduce, static_cast<int>(a), grid.place_in_column, 0, true, 2, {}};
  placement = {.ranks = grid.column,
               .first_step = b - 1,
               .input = output(slice),
               .output = output(slice),
               .first_extent = slice};
  placement.raw = false;
  append(whole.program(), ring_all_reduce(part), placement);

  part = {Collective::all_gather, static_cast<int>(b), grid.place_in_row, 0, true, 2, {}};
  append(whole.program(), ring_all_gather(part),
         {.ranks = grid.row,
          .first_step = b - 1 + 2 * (a - 1),
          .input = output(slice),
          .output = output(0),
          .scale = a});
  return whole.take();
}

Program torus_2d_all_gather(const Request& request) {
  const Grid grid = stand(request);
  const auto a = static_cast<Chunk>(grid.column.size()), b = static_cast<Chunk>(grid.row.size());
  const Chunk row = static_cast<Chunk>(grid.place_in_column) * b;
  Draft whole(request, Algorithm::torus_2d);

  Request part{
      Collective::all_gather, static_cast<int>(b), grid.place_in_row, 0, request.in_place, 2, {}};
  append(whole.program(), ring_all_gather(part),
         {.ranks = grid.row, .input = input(0), .output = output(row), .first_extent = row});

  part = {Collective::all_gather, static_cast<int>(a), grid.place_in_column, 0, true, 2, {}};
  append(whole.program(), ring_all_gather(part),
         {.ranks = grid.column,
          .first_step = b - 1,
          .input = output(row),
          .output = output(0),
          .scale = b});
  return whole.take();
}

}  // namespace

std::span<const Entry> torus_2d_rows() {
  static constexpr Entry kRows[] = {
      {Collective::all_reduce, Algorithm::torus_2d, torus_2d_all_reduce, kAnyOrder, kEven,
       makes_torus},
      {Collective::all_gather, Algorithm::torus_2d, torus_2d_all_gather, kOrdered, kEven,
       makes_torus},
  };
  return kRows;
}

}  // namespace tutti::schedule::builders
