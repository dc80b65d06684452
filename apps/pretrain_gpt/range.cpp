#include "range.hpp"

#include <fmt/format.h>

#include <charconv>
#include <cmath>
#include <string>

namespace pretrain {

namespace {

// The whole of `text`, or nothing.
template <class Number>
bool read_number(const std::string& text, Number& number) {
  const char* begin = text.data() + (text.starts_with('+') ? 1 : 0);
  const char* end = text.data() + text.size();
  const auto [rest, error] = std::from_chars(begin, end, number);
  return error == std::errc{} && rest == end;
}

}  // namespace

CLI::Validator whole(std::int64_t least, std::int64_t most) {
  const auto check = [least, most](const std::string& text) {
    std::int64_t number = 0;
    if (read_number(text, number) && number >= least && number <= most) return std::string();
    return fmt::format("'{}' is not a whole number from {} to {}", text, least, most);
  };
  return CLI::Validator(check, "");
}

CLI::Validator real(Real range) {
  const auto check = [range](const std::string& text) {
    double number = 0;
    const auto [least, most, above, below] = range;
    const bool fits = read_number(text, number) && std::isfinite(number) &&
                      (above ? number > least : number >= least) &&
                      (below ? number < most : number <= most);
    if (fits) return std::string();
    return fmt::format("'{}' is not a number {} {} and {} {}", text,
                       above ? "above" : "of at least", least, below ? "below" : "at most", most);
  };
  return CLI::Validator(check, "");
}

}  // namespace pretrain
