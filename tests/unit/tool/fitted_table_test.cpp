#include "tool/fitted_table.hpp"

#include <gtest/gtest.h>

namespace tutti::tool {
namespace {

const std::vector<TableColumn> kColumns = {
    {"name", "", 6, 90, TableColumn::Side::left, ""},
    {"time", "(us)", 6, 100},
    {"CPU", "(s)", 4, 10},
    {"time", "(us)", 6, 100, TableColumn::Side::right, " | "},
    {"CPU", "(s)", 4, 10, TableColumn::Side::right},
};
const std::vector<std::string> kCells = {"a–b", "1", "2", "3", "4"};

TEST(FittedTable, has_all_columns_where_there_is_room) {
  const FittedTable table(kColumns, 32);
  EXPECT_EQ(table.names(), "name     time  CPU |   time  CPU");
  EXPECT_EQ(table.units(), "         (us)  (s) |   (us)  (s)");
  EXPECT_EQ(table.line(kCells), "a–b         1    2 |      3    4");
  EXPECT_EQ(table.left_out(), "");
  EXPECT_EQ(table.width_of(0, 5), 32u);
}

TEST(FittedTable, leaves_out_the_lightest_columns_of_one_name_together) {
  const FittedTable table(kColumns, 31);
  EXPECT_EQ(table.line(kCells), "a–b         1 |      3");
  EXPECT_EQ(table.left_out(), "CPU");
  EXPECT_EQ(table.width_of(1, 3), 7u);
}

TEST(FittedTable, of_any_width_leaves_out_nothing) {
  EXPECT_EQ(FittedTable(kColumns, kAnyWidth).left_out(), "");
}

}  // namespace
}  // namespace tutti::tool
