#include "tool/bench/table.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <iterator>

#include "tool/bench/arithmetic.hpp"

namespace tutti::tool {
namespace {

std::string optional_number(std::optional<double> number, const char* format) {
  return number ? fmt::format(fmt::runtime(format), *number) : "-";
}

// What is the same in both forms, then the forms, out of place and in place. Which collective, how
// large, how long: that is what a table is for.
constexpr TableColumn kLeft[] = {
    {"collective", "", 14, 85},  {"size", "(B)", 10, 100}, {"count", "(elements)", 11, 30},
    {"type", "", 6, 22},         {"redop", "", 6, 20},     {"algorithm", "", 18, 70},
    {"predicted", "(us)", 9, 45}};
constexpr TableColumn kForm[] = {{"time", "(us)", 9, 100, TableColumn::Side::right, " | "},
                                 {"p99", "(us)", 9, 40},
                                 {"algbw", "(GB/s)", 7, 50},
                                 {"busbw", "(GB/s)", 7, 90},
                                 {"floor", "(%)", 6, 80},
                                 {"CPU", "(s/GB)", 7, 10},
                                 {"wrong", "", 6, 60}};
constexpr std::size_t kCpuColumn = 5;
// In place of the CPU time: a call on a device needs little of it, and what it takes delays the caller.
constexpr TableColumn kHostColumn = {"host", "(us)", 7, 75};
constexpr std::size_t kForms = std::size(kLeft);  // where they begin

void append_form(std::vector<std::string>& cells, const Row* row) {
  if (row == nullptr) {
    cells.insert(cells.end(), std::size(kForm), "-");
    return;
  }
  const auto share = row->floor_share();
  const bool on_device = row->device != "cpu";
  const std::string form[] = {
      time_words(row->timing.median_us),
      time_words(row->timing.p99_us),
      fmt::format("{:.2f}", row->algbw_gbs()),
      fmt::format("{:.2f}", row->busbw_gbs()),
      optional_number(share ? std::optional(*share * 100) : share, "{:.0f}"),
      on_device           ? optional_number(row->host_us, "{:.1f}")
      : row->bytes < 1024 ? "-"
                          : optional_number(row->cpu_s_per_gb(), "{:.2f}"),
      std::to_string(row->wrong)};
  cells.insert(cells.end(), std::begin(form), std::end(form));
}

}  // namespace

std::string time_words(double time_us) {
  if (time_us < 9.995) return fmt::format("{:.2f}", time_us);
  if (time_us < 999.5) return fmt::format("{:.1f}", time_us);
  return fmt::format("{:.0f}", time_us);
}

FittedTable bench_table(const BenchOptions& options) {
  std::vector<TableColumn> columns(std::begin(kLeft), std::end(kLeft));
  for (int form = 0; form < 2; ++form) {
    columns.insert(columns.end(), std::begin(kForm), std::end(kForm));
    if (options.on_device) *(columns.end() - std::size(kForm) + kCpuColumn) = kHostColumn;
  }
  return {std::move(columns), options.wide ? kAnyWidth : options.columns};
}

std::string table_head(const FittedTable& table, const BenchOptions& options, int ranks,
                       const std::string& transport) {
  std::string text =
      fmt::format("# tutti bench: {} rank{}, {}, {} memory, {}{}{}\n", ranks, ranks == 1 ? "" : "s",
                  transport, options.symmetric ? "symmetric" : "plain",
                  options.order == ReductionOrder::any
                      ? ""
                      : fmt::format("folds in {} order, ", to_string(options.order)),
                  options.warm ? "buffers left as they are (warm)" : "buffers touched in between",
                  options.check                 ? ", every iteration checked"
                  : options.effort.back_to_back ? ", calls back to back"
                                                : "");
  if (const std::string left_out = table.left_out(); !left_out.empty())
    text += fmt::format("# --wide adds: {}\n", left_out);
  const std::size_t left = table.width_of(0, kForms);
  const std::size_t form = table.width_of(kForms, kForms + std::size(kForm)) - 3;
  text += fmt::format("#{:{}} | {:^{}} | {:^{}}\n", "", left - 1, "out of place", form, "in place",
                      form);
  // The first blank of a line makes way for the mark.
  return text + "#" + table.names().substr(1) + "\n#" + table.units().substr(1) + "\n";
}

std::string table_line(const FittedTable& table, const Row* out_of_place, const Row* in_place) {
  const Row& any = out_of_place != nullptr ? *out_of_place : *in_place;
  std::vector<std::string> cells = {
      std::string(to_string(any.collective)),
      std::to_string(any.bytes),
      std::to_string(any.count),
      std::string(to_string(any.dtype)),
      std::string(has_reduction(any.collective) ? to_string(any.op) : "none"),
      any.algorithm,
      any.predicted_us ? time_words(*any.predicted_us) : "-"};
  append_form(cells, out_of_place);
  append_form(cells, in_place);
  return table.line(cells) + "\n";
}

std::string summary_table(const std::vector<Row>& rows) {
  constexpr const char* kLine = "{:>15} {:>14} {:>14} {:>16} {:>14} {:>6}\n";
  std::string text = "#" + fmt::format(kLine, "collective", "smallest (us)", "largest (us)",
                                       "best busbw GB/s", "floor share %", "wrong")
                               .substr(1);
  std::vector<Collective> seen;
  for (const Row& first : rows) {
    if (std::find(seen.begin(), seen.end(), first.collective) != seen.end()) continue;
    seen.push_back(first.collective);
    std::vector<double> shares;
    const Row* smallest = &first;
    const Row* largest = &first;
    double best = 0;
    std::size_t wrong = 0;
    for (const Row& row : rows) {
      if (row.collective != first.collective) continue;
      if (row.bytes < smallest->bytes) smallest = &row;
      if (row.bytes > largest->bytes) largest = &row;
      best = std::max(best, row.busbw_gbs());
      wrong += row.wrong;
      shares.push_back(row.floor_share().value_or(0) * 100);
    }
    text += fmt::format(kLine, to_string(first.collective), time_words(smallest->timing.median_us),
                        time_words(largest->timing.median_us), fmt::format("{:.2f}", best),
                        fmt::format("{:.0f}", geometric_mean(shares)), wrong);
  }
  return text;
}

}  // namespace tutti::tool
