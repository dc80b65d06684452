#include "tool/bench/table.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <iterator>

#include "tool/bench/arithmetic.hpp"

namespace tutti::tool {
namespace {

constexpr const char* kFormHead = "{:>9} {:>9} {:>7} {:>7} {:>6} {:>7} {:>6}";

std::string form_head() {
  return fmt::format(kFormHead, "time", "p99", "algbw", "busbw", "floor", "CPU", "wrong");
}
std::string form_units() {
  return fmt::format(kFormHead, "(us)", "(us)", "(GB/s)", "(GB/s)", "(%)", "(s/GB)", "");
}

std::string optional_number(std::optional<double> number, const char* format) {
  return number ? fmt::format(fmt::runtime(format), *number) : "-";
}

std::string form(const Row* row) {
  if (row == nullptr) return fmt::format(kFormHead, "-", "-", "-", "-", "-", "-", "-");
  const auto share = row->floor_share();
  return fmt::format(kFormHead, time_words(row->timing.median_us), time_words(row->timing.p99_us),
                     fmt::format("{:.2f}", row->algbw_gbs()),
                     fmt::format("{:.2f}", row->busbw_gbs()),
                     optional_number(share ? std::optional(*share * 100) : share, "{:.0f}"),
                     row->bytes < 1024 ? "-" : optional_number(row->cpu_s_per_gb(), "{:.2f}"),
                     std::to_string(row->wrong));
}

constexpr const char* kLeftHead = "{:>14} {:>11} {:>11} {:>6} {:>6} {:>18} {:>9}";

}  // namespace

std::string time_words(double time_us) {
  if (time_us < 9.995) return fmt::format("{:.2f}", time_us);
  if (time_us < 999.5) return fmt::format("{:.1f}", time_us);
  return fmt::format("{:.0f}", time_us);
}

std::string table_head(const BenchOptions& options, int ranks, const std::string& transport) {
  const std::string left = fmt::format(kLeftHead, "collective", "size", "count", "type", "redop",
                                       "algorithm", "predicted");
  const std::string units = fmt::format(kLeftHead, "", "(B)", "(elements)", "", "", "", "(us)");
  std::string text = fmt::format(
      "# tutti bench: {} ranks, {}, {} memory, {}{}\n", ranks, transport,
      options.symmetric ? "symmetric" : "plain",
      options.warm ? "buffers left as they are (warm)" : "buffers touched between iterations",
      options.check                 ? ", every iteration checked"
      : options.effort.back_to_back ? ", calls back to back"
                                    : "");
  const int width = static_cast<int>(form_head().size());
  text += fmt::format("#{:{}} | {:^{}} | {:^{}}\n", "", left.size(), "out of place", width,
                      "in place", width);
  text += fmt::format("#{} | {} | {}\n", left, form_head(), form_head());
  text += fmt::format("#{} | {} | {}\n", units, form_units(), form_units());
  return text;
}

std::string table_line(const Row* out_of_place, const Row* in_place) {
  const Row& any = out_of_place != nullptr ? *out_of_place : *in_place;
  const std::string left =
      fmt::format(kLeftHead, to_string(any.collective), any.bytes, any.count, to_string(any.dtype),
                  has_reduction(any.collective) ? to_string(any.op) : "none", any.algorithm,
                  any.predicted_us ? time_words(*any.predicted_us) : "-");
  return fmt::format(" {} | {} | {}\n", left, form(out_of_place), form(in_place));
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
