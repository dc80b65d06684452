// The table of collectives against what each is, spelled out by hand: every other reader trusts it.
#include "tutti/shape.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <initializer_list>

#include "tutti/tutti.h"

namespace tutti {
namespace {

using C = Collective;

// Exactly these collectives have a property.
template <class Property>
void expect_only(std::initializer_list<Collective> which, Property property, const char* name) {
  for (int i = 0; i < kCollectives; ++i) {
    const auto collective = static_cast<Collective>(i);
    const bool expected = std::find(which.begin(), which.end(), collective) != which.end();
    EXPECT_EQ(property(shape_of(collective)), expected) << name << ": " << to_string(collective);
  }
}

TEST(Shape, says_of_each_collective_who_has_what) {
  const auto only = [](auto which, const char* name, auto property) {
    expect_only(which, property, name);
  };
  using List = std::initializer_list<Collective>;
  using S = const CollectiveShape&;
  only(List{C::broadcast, C::reduce, C::gather, C::scatter}, "rooted",
       [](S shape) { return shape.rooted; });
  only(List{C::reduce, C::all_reduce, C::reduce_scatter, C::scan, C::exclusive_scan}, "folds",
       [](S shape) { return shape.folds(); });
  only(List{C::scan, C::exclusive_scan}, "prefix", [](S shape) { return shape.is_prefix(); });
  only(List{C::gather, C::all_gather, C::scatter, C::reduce_scatter, C::all_to_all}, "parts",
       [](S shape) { return shape.has_parts(); });
  only(List{C::all_to_all}, "pairs", [](S shape) { return shape.has_pairs(); });
  only(List{C::broadcast}, "one buffer", [](S shape) { return shape.has_one_buffer(); });
  only(List{C::barrier}, "no data", [](S shape) { return !shape.has_data(); });
  only(List{C::all_gather, C::reduce_scatter}, "all see the parts",
       [](S shape) { return shape.all_see_parts(); });
  only(List{C::broadcast, C::all_reduce}, "all get the same",
       [](S shape) { return shape.all_get_the_same(); });
  only(List{C::all_reduce, C::all_gather, C::reduce_scatter, C::all_to_all, C::barrier}, "all meet",
       [](S shape) { return shape.all_meet(); });
  only(List{C::scatter}, "input at the root alone", [](S shape) { return shape.input.only_root; });
  only(List{C::reduce, C::gather}, "output at the root alone",
       [](S shape) { return shape.output.only_root; });
  only(List{C::gather, C::all_gather}, "input is a part",
       [](S shape) { return shape.is_part(shape.input); });
  only(List{C::scatter, C::reduce_scatter}, "output is a part",
       [](S shape) { return shape.is_part(shape.output); });
}

TEST(Shape, a_side_that_only_the_root_has_is_nowhere_else) {
  const CollectiveShape& gather = shape_of(C::gather);
  EXPECT_TRUE(gather.output.is_there(true));
  EXPECT_FALSE(gather.output.is_there(false));
  EXPECT_TRUE(gather.input.is_there(false));
  EXPECT_FALSE(shape_of(C::barrier).output.is_there(true));
}

TEST(Shape, counts_who_is_in_a_fold) {
  EXPECT_EQ(shape_of(C::all_reduce).contributors(2, 5), 5);
  EXPECT_EQ(shape_of(C::scan).contributors(2, 5), 3);
  EXPECT_EQ(shape_of(C::exclusive_scan).contributors(2, 5), 2);
  EXPECT_TRUE(shape_of(C::exclusive_scan).gets_nothing(0, 5));
  EXPECT_FALSE(shape_of(C::scan).gets_nothing(0, 5));
  EXPECT_FALSE(shape_of(C::broadcast).gets_nothing(0, 5));
  EXPECT_EQ(shape_of(C::all_gather).origin(3, 0), 3);
  EXPECT_EQ(shape_of(C::scatter).origin(0, 4), 4);
}

TEST(Shape, bus_factors_are_those_of_nccl_tests) {
  EXPECT_DOUBLE_EQ(bus_factor(C::all_reduce, 4), 1.5);
  EXPECT_DOUBLE_EQ(bus_factor(C::all_reduce, 2), 1.0);
  for (const C collective :
       {C::all_gather, C::reduce_scatter, C::all_to_all, C::gather, C::scatter})
    EXPECT_DOUBLE_EQ(bus_factor(collective, 8), 7.0 / 8) << to_string(collective);
  for (const C collective : {C::broadcast, C::reduce, C::scan, C::exclusive_scan})
    EXPECT_DOUBLE_EQ(bus_factor(collective, 8), 1) << to_string(collective);
  EXPECT_DOUBLE_EQ(bus_factor(C::barrier, 8), 0);
}

TEST(Shape, numbers_do_not_change) {  // they are in traces, and in programs built against the C API
  EXPECT_EQ(static_cast<int>(C::broadcast), 0);
  EXPECT_EQ(static_cast<int>(C::all_reduce), 2);
  EXPECT_EQ(static_cast<int>(C::barrier), 8);
  EXPECT_EQ(static_cast<int>(C::exclusive_scan), 10);
  EXPECT_EQ(TUTTI_EXCLUSIVE_SCAN, 10);
  EXPECT_STREQ(std::string(to_string(C::reduce_scatter)).c_str(), "reduce_scatter");
}

}  // namespace
}  // namespace tutti
