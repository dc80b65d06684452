// What pages read: cells with aliasing resolved, and what they hold at first and at last.
#include "schedule/drawing.hpp"

#include <gtest/gtest.h>

#include "schedule/hazards.hpp"
#include "schedule/host/lower.hpp"
#include "worlds.hpp"

namespace tutti::schedule {
namespace {

Program program_of(Collective collective, Algorithm algorithm, int n, int rank, bool in_place) {
  auto program =
      build(algorithm, {.collective = collective, .size = n, .rank = rank, .in_place = in_place});
  EXPECT_TRUE(program.ok()) << program.status().to_string();
  return *std::move(program);
}

TEST(Drawing, in_place_input_and_output_are_one_cell) {
  const Program apart = program_of(Collective::all_reduce, Algorithm::ring, 4, 1, false);
  const Program together = program_of(Collective::all_reduce, Algorithm::ring, 4, 1, true);
  EXPECT_EQ(Cells(apart).all().size(), 4 + Cells(together).all().size());
  const Cells cells(together);
  EXPECT_EQ(cells.index(Space::input, 2), cells.index(Space::output, 2));
  const Cell& cell = cells.all()[cells.index(Space::input, 2)];
  EXPECT_EQ(cell.where, Cell::Where::output);
  EXPECT_EQ(cell.start, (Contributors{1, 1}));
  EXPECT_EQ(cell.goal, (Contributors{0, 4}));
}

TEST(Drawing, sides_that_a_rank_lacks_have_no_cells) {
  const Program program = program_of(Collective::reduce, Algorithm::ring, 4, 2, false);
  const Cells cells(program);
  for (const Cell& cell : cells.all()) EXPECT_NE(cell.where, Cell::Where::output);
}

TEST(Drawing, scans_promise_what_came_before) {
  const Program program = program_of(Collective::exclusive_scan, Algorithm::linear, 4, 2, false);
  const Cells cells(program);
  EXPECT_EQ(cells.all()[cells.index(Space::output, 0)].goal, (Contributors{0, 2}));
}

// Regions are printed as a first cell and a count, so their cells must be neighbours.
TEST(Drawing, every_region_is_a_run_of_cells) {
  for (const Entry& entry : catalog())
    each_request(entry, 1, 9, [&](const Request& request) {
      auto world = build_world(entry.algorithm, request, Mode::mixed);
      ASSERT_TRUE(world.ok());
      for (const Program& program : *world) {
        const Cells cells(program);
        for (const Op& op : program.ops)
          each_access(op, [&](const Region& region, bool) {
            for (std::uint32_t c = 0; c < region.count; ++c)
              ASSERT_EQ(cells.index(region.space, region.first + c),
                        cells.index(region.space, region.first) + c);
          });
      }
    });
}

TEST(Drawing, prints_short_json) {
  const auto world = build_world(Algorithm::linear,
                                 {.collective = Collective::broadcast, .size = 2}, Mode::in_place);
  ASSERT_TRUE(world.ok());
  EXPECT_EQ(print_drawing(*world),
            "[\n{\"cells\":[[1,0,0,0,0,1]],\"ops\":[[0,0,1,0,1]]},"
            "\n{\"cells\":[[1,0,0,-1,0,1]],\"ops\":[[1,0,0,0,1]]}]");
}

TEST(Drawing, slots_of_a_host_form_are_cells_behind_the_others) {
  const auto world = build_world(Algorithm::direct,
                                 {.collective = Collective::all_reduce, .size = 3}, Mode::in_place);
  ASSERT_TRUE(world.ok());
  const auto window = lower(*world, Reach::window);
  ASSERT_TRUE(window);
  const Cells cells(window->front());  // three chunks, two shown, one result
  ASSERT_EQ(cells.all().size(), 6U);
  EXPECT_EQ(cells.all()[3], (Cell{Cell::Where::window, 0, 1, {}, {}}));
  EXPECT_EQ(cells.index(Spot{Spot::Where::window, 1}), 4U);
  EXPECT_EQ(cells.index(Spot{Spot::Where::result, 0}), 5U);
  EXPECT_EQ(cells.all()[5], (Cell{Cell::Where::result, 0, 0, {}, {}}));
  EXPECT_EQ(cells.index(Spot{Spot::Where::input, 2}), 2U);
  const auto mapped = lower(*world, Reach::mapped);
  ASSERT_TRUE(mapped);
  EXPECT_EQ(Cells(mapped->front()).all().size(), 3U);
}

TEST(Drawing, prints_host_forms_as_phases) {
  const auto reduced = build_world(
      Algorithm::direct, {.collective = Collective::all_reduce, .size = 2}, Mode::in_place);
  ASSERT_TRUE(reduced.ok());
  EXPECT_EQ(print_drawing(*lower(*reduced, Reach::window)),
            "[\n{\"cells\":[[1,0,0,0,0,2],[1,1,1,0,0,2],[3,0,1,-1,0,0],[4,0,0,-1,0,0]],"
            "\"phases\":[[[0,1,2]],[[4,0,1,[0,[1,2]],[3]]],[[2,1,3,1,1]]]},"
            "\n{\"cells\":[[1,0,0,1,0,2],[1,1,1,1,0,2],[3,0,0,-1,0,0],[4,0,1,-1,0,0]],"
            "\"phases\":[[[0,0,2]],[[4,1,1,[[0,2],1],[3]]],[[2,0,3,0,1]]]}]");
  const auto sent = build_world(Algorithm::direct, {.collective = Collective::broadcast, .size = 3},
                                Mode::in_place);
  ASSERT_TRUE(sent.ok());
  EXPECT_EQ(print_drawing(*lower(*sent, Reach::mapped)),
            "[\n{\"cells\":[[1,0,0,0,0,1]],\"phases\":[[],[[3,1,0,0,0.3333],[3,2,0,0,0.3333]],[]]},"
            "\n{\"cells\":[[1,0,0,-1,0,1]],\"phases\":[[],[[2,0,0,0,0.6667]],[]]},"
            "\n{\"cells\":[[1,0,0,-1,0,1]],\"phases\":[[],[[2,0,0,0,0.6667]],[]]}]");
}

}  // namespace
}  // namespace tutti::schedule
