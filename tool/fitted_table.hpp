// tool/fitted_table.hpp - a table that fits its window: where it is too narrow, the columns that count
// least are left out, and named.
#pragma once

#include <cstddef>
#include <span>
#include <string>
#include <vector>

namespace tutti::tool {

inline constexpr std::size_t kAnyWidth = static_cast<std::size_t>(-1);

// Of the terminal, or what COLUMNS says; for files and pipes wide enough for most tables.
std::size_t window_width();

struct TableColumn {
  enum class Side { left, right };

  const char* name;
  const char* unit;
  std::size_t width;
  int weight;  // the lighter, the sooner it is left out; columns of one name go together
  Side side = Side::right;
  const char* before = " ";  // what parts it from its neighbour
};

class FittedTable {
 public:
  FittedTable(std::vector<TableColumn> columns, std::size_t width);

  // A cell for each column, those that are left out included.
  std::string line(std::span<const std::string> cells) const;
  std::string names() const;
  std::string units() const;
  // What columns first … last - 1 take, with what parts them.
  std::size_t width_of(std::size_t first, std::size_t last) const;
  // "p99, CPU"; empty: all are there.
  std::string left_out() const;

 private:
  std::vector<TableColumn> columns_;
  std::vector<bool> shown_;
};

// Filled up with blanks to `width` letters, as a terminal counts them: fmt counts bytes of "–".
std::string padded(const std::string& text, std::size_t width, TableColumn::Side side);

}  // namespace tutti::tool
