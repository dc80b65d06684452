#include "plan/units.hpp"

#include <fmt/format.h>

#include <charconv>
#include <cmath>
#include <span>

namespace tutti::plan {
namespace {

struct Scale {
  std::string_view word;
  double factor;
  bool printed = true;  // others are understood, but not used
};

// Largest first.
constexpr Scale kSeconds[] = {
    {"s", 1}, {"ms", 1e-3}, {"us", 1e-6}, {"µs", 1e-6, false}, {"ns", 1e-9}};
constexpr Scale kBytes[] = {{"TB", 1e12},
                            {"GB", 1e9},
                            {"MB", 1e6},
                            {"kB", 1e3},
                            {"TiB", 0x1p40, false},
                            {"GiB", 0x1p30, false},
                            {"MiB", 0x1p20, false},
                            {"KiB", 0x1p10, false},
                            {"B", 1}};
constexpr Scale kBytesPerSecond[] = {{"TB/s", 1e12},
                                     {"GB/s", 1e9},
                                     {"MB/s", 1e6},
                                     {"kB/s", 1e3},
                                     {"Tbit/s", 125e9, false},
                                     {"Gbit/s", 125e6, false},
                                     {"Mbit/s", 125e3, false},
                                     {"B/s", 1}};
constexpr Scale kFlops[] = {
    {"PFLOP/s", 1e15}, {"TFLOP/s", 1e12}, {"GFLOP/s", 1e9}, {"MFLOP/s", 1e6}, {"FLOP/s", 1}};

std::span<const Scale> scales(Unit unit) {
  switch (unit) {
    case Unit::seconds: return kSeconds;
    case Unit::bytes: return kBytes;
    case Unit::bytes_per_s: return kBytesPerSecond;
    case Unit::flops: return kFlops;
  }
  return {};
}

std::string words_of(Unit unit) {
  std::string words;
  for (const Scale& scale : scales(unit))
    words += fmt::format("{}{}", words.empty() ? "" : ", ", scale.word);
  return words;
}

Status refusal(std::string_view text, Unit unit, std::string_view what) {
  return {Code::invalid_argument, fmt::format("'{}' {}; units are {}", text, what, words_of(unit))};
}

}  // namespace

Result<double> read_quantity(std::string_view text, Unit unit) {
  double number = 0;
  const char* end = text.data() + text.size();
  const auto [after, error] = std::from_chars(text.data(), end, number);
  if (error != std::errc() || !std::isfinite(number))
    return refusal(text, unit, "does not begin with a number");
  if (number < 0) return refusal(text, unit, "is below zero");
  std::string_view word(after, static_cast<std::size_t>(end - after));
  while (!word.empty() && word.front() == ' ') word.remove_prefix(1);
  if (word.empty()) return refusal(text, unit, "has no unit");
  for (const Scale& scale : scales(unit))
    if (scale.word == word) return number * scale.factor;
  return refusal(text, unit, fmt::format("has the unit '{}'", word));
}

std::string quantity_text(double value, Unit unit) {
  const auto all = scales(unit);
  for (const Scale& scale : all) {
    const double number = value / scale.factor;
    if (scale.printed && number >= 1 && number * scale.factor == value)
      return fmt::format("{} {}", number, scale.word);
  }
  // The unit itself loses nothing.
  for (const Scale& scale : all)
    if (scale.factor == 1) return fmt::format("{} {}", value, scale.word);
  return {};
}

std::string short_text(double value, Unit unit) {
  const Scale* last = nullptr;
  for (const Scale& scale : scales(unit)) {
    if (!scale.printed) continue;
    last = &scale;
    if (value >= scale.factor) break;
  }
  const double number = value / last->factor;
  const int digits = number >= 99.95 || number == std::floor(number) ? 0 : number >= 9.995 ? 1 : 2;
  return fmt::format("{:.{}f} {}", number, digits, last->word);
}

}  // namespace tutti::plan
