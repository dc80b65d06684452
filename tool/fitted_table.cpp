#include "tool/fitted_table.hpp"

#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <string_view>

#include "core/words.hpp"

namespace tutti::tool {

std::size_t window_width() {
  constexpr std::size_t kLeast = 40;
  constexpr std::size_t kWithoutWindow = 100;
  if (const char* said = std::getenv("COLUMNS"))
    if (const auto columns = parse_integer(said); columns.ok() && *columns > 0)
      return std::max(kLeast, static_cast<std::size_t>(*columns));
  winsize size{};
  if (::isatty(STDOUT_FILENO) == 0 || ::ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) != 0 ||
      size.ws_col == 0)
    return kWithoutWindow;
  return std::max<std::size_t>(kLeast, size.ws_col);
}

std::string padded(const std::string& text, std::size_t width, TableColumn::Side side) {
  const auto letters = static_cast<std::size_t>(
      std::ranges::count_if(text, [](char byte) { return (byte & 0xc0) != 0x80; }));
  const std::string blanks(letters < width ? width - letters : 0, ' ');
  return side == TableColumn::Side::left ? text + blanks : blanks + text;
}

FittedTable::FittedTable(std::vector<TableColumn> columns, std::size_t width)
    : columns_(std::move(columns)), shown_(columns_.size(), width == kAnyWidth) {
  if (width == kAnyWidth) return;
  std::vector<TableColumn> by_weight = columns_;
  std::ranges::stable_sort(by_weight, std::greater<>(), &TableColumn::weight);
  std::size_t left = width;
  for (const TableColumn& wanted : by_weight) {
    const std::string_view name = wanted.name;
    std::size_t needed = 0;
    for (std::size_t i = 0; i < columns_.size(); ++i)
      if (columns_[i].name == name && !shown_[i])
        needed += columns_[i].width + std::string_view(columns_[i].before).size();
    if (needed > left) continue;
    left -= needed;
    for (std::size_t i = 0; i < columns_.size(); ++i)
      if (columns_[i].name == name) shown_[i] = true;
  }
}

std::string FittedTable::line(std::span<const std::string> cells) const {
  std::string text;
  for (std::size_t i = 0; i < columns_.size(); ++i)
    if (shown_[i])
      text += columns_[i].before + padded(cells[i], columns_[i].width, columns_[i].side);
  text.erase(text.find_last_not_of(' ') + 1);
  return text;
}

std::string FittedTable::names() const {
  std::vector<std::string> cells;
  for (const TableColumn& column : columns_) cells.emplace_back(column.name);
  return line(cells);
}

std::string FittedTable::units() const {
  std::vector<std::string> cells;
  for (const TableColumn& column : columns_) cells.emplace_back(column.unit);
  return line(cells);
}

std::size_t FittedTable::width_of(std::size_t first, std::size_t last) const {
  std::size_t sum = 0;
  for (std::size_t i = first; i < last; ++i)
    if (shown_[i]) sum += columns_[i].width + std::string_view(columns_[i].before).size();
  return sum;
}

std::string FittedTable::left_out() const {
  std::vector<std::string_view> names;
  for (std::size_t i = 0; i < columns_.size(); ++i)
    if (!shown_[i] && std::ranges::count(names, std::string_view(columns_[i].name)) == 0)
      names.emplace_back(columns_[i].name);
  return list_words(names);
}

}  // namespace tutti::tool
