// Plans and layouts for people.
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <map>
#include <set>

#include "tutti/redistribution.hpp"

namespace tutti {
inline namespace v1 {
namespace {

// Three digits and the unit that fits; `units` are 1000 apart.
template <std::size_t N>
std::string figure(double value, const std::array<const char*, N>& units) {
  std::size_t unit = 0;
  for (; value >= 999.5 && unit + 1 < N; ++unit) value /= 1000;
  const int digits = value < 9.995 ? 2 : value < 99.95 ? 1 : 0;
  return fmt::format("{:.{}f} {}", value, unit == 0 && value == std::floor(value) ? 0 : digits,
                     units[unit]);
}

std::string bytes_text(std::int64_t bytes) {
  constexpr std::array units{"B", "kB", "MB", "GB", "TB"};
  return figure(static_cast<double>(bytes), units);
}

std::string time_text(double seconds) {
  constexpr std::array units{"ns", "us", "ms", "s"};
  return figure(seconds * 1e9, units);
}

std::string names_of_axes(const RedistributionStep& step) {
  std::string names;
  for (const int axis : step.axes)
    names += (names.empty() ? "" : " ") + step.after.axes[static_cast<std::size_t>(axis)].name;
  return names;
}

std::string rows_of(const RedistributionChain& chain) {
  std::string text;
  int number = 0;
  for (const RedistributionStep& step : chain.steps) {
    const bool is_local = step.ranks == 1;
    text += fmt::format("{:>3}  {:<15}{:<11}{:>5}{:>12}{:>12}{:>11}   ({})\n", ++number,
                        to_string(step.kind), names_of_axes(step),
                        is_local ? "" : fmt::to_string(step.ranks),
                        is_local ? "" : bytes_text(step.array_bytes), bytes_text(step.rank_bytes),
                        time_text(step.seconds), to_string(step.after.placements));
  }
  return text + fmt::format("     {:<31}{:>12}{:>12}{:>11}\n", "in all", "",
                            bytes_text(chain.rank_bytes), time_text(chain.seconds));
}

std::string verdict_on(const RedistributionPlan& plan) {
  const double ours = plan.chain.seconds, naive = plan.naive.seconds;
  if (naive <= ours) return "The chain that goes axis by axis is as good.\n";
  std::string text = fmt::format("Axis by axis it takes {} and moves {} a rank", time_text(naive),
                                 bytes_text(plan.naive.rank_bytes));
  if (ours > 0) text += fmt::format(": {:.3g} times as long", naive / ours);
  return text + ".\n";
}

// ---- who holds what

std::string interval(std::int64_t first, std::int64_t length) {
  return length == 0 ? "-" : fmt::format("{}..{}", first, first + length - 1);
}

// "0-3 6".
std::string list_of(const std::vector<int>& numbers) {
  std::string text;
  for (std::size_t i = 0; i < numbers.size();) {
    std::size_t last = i;
    while (last + 1 < numbers.size() && numbers[last + 1] == numbers[last] + 1) ++last;
    text += text.empty() ? "" : " ";
    text += last > i + 1 ? fmt::format("{}-{}", numbers[i], numbers[last])
            : last > i   ? fmt::format("{} {}", numbers[i], numbers[last])
                         : fmt::to_string(numbers[i]);
    i = last + 1;
  }
  return text;
}

// The holders of one box: those that are alike side by side, sums of them joined: "0 1 + 4 5".
std::string holders_text(const TensorLayout& layout, const std::vector<int>& positions) {
  std::map<Coordinates, std::vector<int>> by_term;
  for (const int position : positions) {
    Coordinates term = coordinates_of(layout.axes, position);
    for (std::size_t axis = 0; axis < term.size(); ++axis)
      if (layout.placements[axis].kind != AxisPlacement::Kind::partial) term[axis] = 0;
    by_term[term].push_back(position);
  }
  std::string text;
  for (const auto& [term, ranks] : by_term) text += (text.empty() ? "" : " + ") + list_of(ranks);
  return text;
}

using Interval = std::pair<std::int64_t, std::int64_t>;  // first, length

// The dimensions that are cut; one that is not stands in where there are fewer than two.
std::vector<std::size_t> cut_dimensions(const TensorLayout& layout) {
  std::set<std::size_t> cut;
  for (std::size_t axis = 0; axis < layout.axes.size(); ++axis)
    if (layout.placements[axis].kind == AxisPlacement::Kind::shard && layout.axes[axis].size > 1)
      cut.insert(static_cast<std::size_t>(layout.placements[axis].dimension));
  for (std::size_t i = 0; i < layout.shape.size() && cut.size() < 2; ++i) cut.insert(i);
  return {cut.begin(), cut.end()};
}

std::string draw_list(const TensorLayout& layout) {
  std::string text;
  for (int position = 0; position < ranks_of(layout.axes); ++position) {
    const TensorBox box = layout.box(position);
    std::string where;
    for (std::size_t i = 0; i < box.shape.size(); ++i)
      where += (where.empty() ? "" : ", ") + interval(box.first[i], box.shape[i]);
    text += fmt::format("{:>6}  [{}]\n", position, where);
  }
  return text;
}

std::string draw_grid(const TensorLayout& layout, const std::vector<std::size_t>& dimensions) {
  const auto cut = [&](const TensorBox& box, std::size_t i) {
    return i < dimensions.size() ? Interval{box.first[dimensions[i]], box.shape[dimensions[i]]}
                                 : Interval{0, 1};
  };
  std::map<Interval, std::map<Interval, std::vector<int>>> grid;
  std::set<Interval> columns;
  for (int position = 0; position < ranks_of(layout.axes); ++position) {
    const TensorBox box = layout.box(position);
    if (box.count() == 0) continue;
    grid[cut(box, 0)][cut(box, 1)].push_back(position);
    columns.insert(cut(box, 1));
  }
  std::map<Interval, std::size_t> width;
  for (const Interval& column : columns) {
    width[column] = interval(column.first, column.second).size();
    for (const auto& [row, cells] : grid)
      if (const auto at = cells.find(column); at != cells.end())
        width[column] = std::max(width[column], holders_text(layout, at->second).size());
  }
  std::string text = fmt::format("{:>14}", "");
  for (const Interval& column : columns)
    text +=
        fmt::format("  {:<{}}", dimensions.size() < 2 ? "" : interval(column.first, column.second),
                    width[column]);
  text += '\n';
  for (const auto& [row, cells] : grid) {
    text += fmt::format("{:>14}", dimensions.empty() ? "" : interval(row.first, row.second));
    for (const Interval& column : columns) {
      const auto at = cells.find(column);
      text += fmt::format("  {:<{}}", at == cells.end() ? "" : holders_text(layout, at->second),
                          width[column]);
    }
    text += '\n';
  }
  return text;
}

// Without blanks at the ends of lines.
std::string tidied(const std::string& text) {
  std::string result;
  for (std::size_t begin = 0; begin < text.size();) {
    const std::size_t end = text.find('\n', begin);
    std::string line = text.substr(begin, end - begin);
    line.erase(line.find_last_not_of(' ') + 1);
    if (!line.empty()) result += line + '\n';
    begin = end + 1;
  }
  return result;
}

}  // namespace

std::string describe(const RedistributionPlan& plan) {
  std::string text = fmt::format("{} to ({}) on {}\n", to_string(plan.from),
                                 to_string(plan.to.placements), to_string(plan.from.axes));
  if (plan.chain.steps.empty()) return text + "Nothing changes.\n";
  text += fmt::format("     {:<15}{:<11}{:>5}{:>12}{:>12}{:>11}   {}\n", "step", "along", "ranks",
                      "array", "a rank", "time", "then");
  text += rows_of(plan.chain) + verdict_on(plan);
  return text;
}

std::string draw(const TensorLayout& layout) {
  const std::vector<std::size_t> dimensions = cut_dimensions(layout);
  return tidied(dimensions.size() > 2 ? draw_list(layout) : draw_grid(layout, dimensions));
}

}  // namespace v1
}  // namespace tutti
