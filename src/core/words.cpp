#include "core/words.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <utility>

namespace tutti {
namespace {

char lower(char letter) { return letter >= 'A' && letter <= 'Z' ? letter - 'A' + 'a' : letter; }

std::string_view trim(std::string_view text) {
  while (!text.empty() && (text.front() == ' ' || text.front() == '\t')) text.remove_prefix(1);
  while (!text.empty() && (text.back() == ' ' || text.back() == '\t')) text.remove_suffix(1);
  return text;
}

Status unreadable(std::string_view text, std::string_view wanted) {
  return Status(Code::invalid_argument, fmt::format("'{}' is not {}", text, wanted));
}

struct Unit {
  std::string_view word;
  double factor;
};

// A number of at least zero, then one of `units`; the first unit is what no unit means.
bool read_quantity(std::string_view text, std::span<const Unit> units, double& value) {
  text = trim(text);
  const char* end = text.data() + text.size();
  const auto [rest, error] = std::from_chars(text.data(), end, value);
  if (error != std::errc() || !(value >= 0)) return false;
  const std::string_view word = trim({rest, static_cast<std::size_t>(end - rest)});
  for (const Unit& unit : units) {
    if (!same_letters(unit.word, word)) continue;
    value *= unit.factor;
    return true;
  }
  return false;
}

// How many letters have to be put in, taken out or changed to make one of the other.
std::size_t letters_apart(std::string_view a, std::string_view b) {
  std::vector<std::size_t> row(b.size() + 1);
  for (std::size_t j = 0; j <= b.size(); ++j) row[j] = j;
  for (std::size_t i = 1; i <= a.size(); ++i) {
    std::size_t before = std::exchange(row[0], i);
    for (std::size_t j = 1; j <= b.size(); ++j) {
      const std::size_t change = before + (lower(a[i - 1]) != lower(b[j - 1]));
      before = row[j];
      row[j] = std::min({row[j] + 1, row[j - 1] + 1, change});
    }
  }
  return row[b.size()];
}

constexpr double kKi = 1024;
constexpr std::array<Unit, 11> kByteUnits = {{{"", 1},
                                              {"b", 1},
                                              {"k", kKi},
                                              {"kb", kKi},
                                              {"kib", kKi},
                                              {"m", kKi* kKi},
                                              {"mb", kKi* kKi},
                                              {"mib", kKi* kKi},
                                              {"g", kKi* kKi* kKi},
                                              {"gb", kKi* kKi* kKi},
                                              {"gib", kKi* kKi* kKi}}};
constexpr std::array<Unit, 6> kTimeUnits = {
    {{"", 1e9}, {"s", 1e9}, {"ms", 1e6}, {"us", 1e3}, {"m", 60e9}, {"h", 3600e9}}};

}  // namespace

std::vector<std::string_view> split_words(std::string_view text, char separator) {
  std::vector<std::string_view> words;
  while (!text.empty()) {
    const std::size_t cut = std::min(text.find(separator), text.size());
    if (const auto word = trim(text.substr(0, cut)); !word.empty()) words.push_back(word);
    text.remove_prefix(std::min(cut + 1, text.size()));
  }
  return words;
}

bool same_letters(std::string_view a, std::string_view b) {
  return std::equal(a.begin(), a.end(), b.begin(), b.end(),
                    [](char x, char y) { return lower(x) == lower(y); });
}

std::string list_words(std::span<const std::string_view> words) {
  return fmt::format("{}", fmt::join(words.begin(), words.end(), ", "));
}

std::string unknown_word(std::string_view what, std::string_view word,
                         std::span<const std::string_view> right_ones) {
  return fmt::format("there is no {} '{}'; there are: {}", what, word, list_words(right_ones));
}

std::string to_hex(std::string_view bytes) {
  std::string text;
  for (const char byte : bytes) text += fmt::format("{:02x}", static_cast<unsigned char>(byte));
  return text;
}

std::string from_hex(std::string_view text) {
  constexpr std::string_view kDigits = "0123456789abcdef";
  std::string bytes;
  for (std::size_t i = 0; i + 1 < text.size(); i += 2) {
    const std::size_t high = kDigits.find(text[i]);
    const std::size_t low = kDigits.find(text[i + 1]);
    if (high == kDigits.npos || low == kDigits.npos) return {};
    bytes += static_cast<char>(high * 16 + low);
  }
  return bytes;
}

std::string_view nearest_word(std::string_view word, std::span<const std::string_view> right_ones) {
  std::string_view nearest;
  std::size_t least = (word.size() + 2) / 3 + 1;  // more letters apart, it is another word
  for (const std::string_view each : right_ones) {
    const std::size_t apart = letters_apart(word, each);
    if (apart >= least) continue;
    least = apart;
    nearest = each;
  }
  return nearest;
}

Result<std::int64_t> parse_integer(std::string_view text) {
  const std::string_view digits = trim(text);
  std::int64_t value = 0;
  const char* end = digits.data() + digits.size();
  const auto [rest, error] = std::from_chars(digits.data(), end, value);
  if (error != std::errc() || rest != end) return unreadable(text, "a whole number");
  return value;
}

Result<std::size_t> parse_bytes(std::string_view text) {
  double value = 0;
  // 2^53: up to there a double counts bytes exactly.
  if (!read_quantity(text, kByteUnits, value) || value > 9007199254740992.0)
    return unreadable(text, "a number of bytes (65536, 64K, 1M, 1G)");
  return static_cast<std::size_t>(value);
}

Result<std::chrono::nanoseconds> parse_duration(std::string_view text) {
  double value = 0;
  if (!read_quantity(text, kTimeUnits, value) || value > 9.2e18)
    return unreadable(text, "a time (30, 0.5, 500ms, 30s, 5m, 1h; seconds where no unit is given)");
  return std::chrono::nanoseconds(static_cast<std::int64_t>(value));
}

Result<bool> parse_switch(std::string_view text) {
  const std::string_view word = trim(text);
  for (std::string_view yes : {"1", "true", "yes", "on"})
    if (same_letters(word, yes)) return true;
  for (std::string_view no : {"0", "false", "no", "off"})
    if (same_letters(word, no)) return false;
  return unreadable(text, "one of 1, true, yes, on, 0, false, no, off");
}

}  // namespace tutti
