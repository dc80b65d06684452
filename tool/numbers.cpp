#include "tool/numbers.hpp"

#include <fmt/format.h>

#include <charconv>

#include "core/words.hpp"

namespace tutti::tool {
namespace {

std::string words_of(std::chrono::nanoseconds time) {
  using std::chrono::duration_cast;
  using Seconds = std::chrono::duration<double>;
  const double seconds = duration_cast<Seconds>(time).count();
  if (seconds >= 3600) return fmt::format("{:g} h", seconds / 3600);
  if (seconds >= 1) return fmt::format("{:g} s", seconds);
  return seconds >= 1e-3 ? fmt::format("{:g} ms", seconds * 1e3)
                         : fmt::format("{:g} us", seconds * 1e6);
}

}  // namespace

CLI::Validator between(std::int64_t least, std::int64_t most) {
  const auto check = [least, most](std::string& text) -> std::string {
    const auto number = parse_integer(text);
    // Digits without end are a number too, if a large one.
    const bool digits = text.find_first_not_of("-0123456789") == std::string::npos && !text.empty();
    if (!number.ok() && !digits) return fmt::format("'{}' is not a whole number", text);
    if (number.ok() && *number >= least && *number <= most) return "";
    return fmt::format("{} lies outside {} … {}", text, least, most);
  };
  return {check, ""};
}

CLI::Validator share() {
  const auto check = [](std::string& text) -> std::string {
    double number = 0;
    const char* end = text.data() + text.size();
    const auto read = std::from_chars(text.data(), end, number);
    if (read.ec != std::errc() || read.ptr != end) return fmt::format("'{}' is not a number", text);
    if (number > 0 && number <= 1) return "";
    return fmt::format("{} is not more than 0 and at most 1", text);
  };
  return {check, ""};
}

CLI::Validator filled() {
  const auto check = [](std::string& text) -> std::string {
    return text.empty() ? "nothing is given" : "";
  };
  return {check, ""};
}

Result<std::chrono::nanoseconds> read_duration(const char* flag, const std::string& text,
                                               std::chrono::nanoseconds least,
                                               std::chrono::nanoseconds most) {
  auto time = parse_duration(text);
  if (!time.ok()) return time.status().annotate(flag);
  if (*time >= least && *time <= most) return time;
  return Status(Code::invalid_argument, fmt::format("{} {} lies outside {} … {}", flag, text,
                                                    words_of(least), words_of(most)));
}

Result<std::size_t> read_size(const char* flag, const std::string& text) {
  auto bytes = parse_bytes(text);
  if (!bytes.ok()) return bytes.status().annotate(flag);
  if (*bytes > 0) return bytes;
  return Status(Code::invalid_argument, fmt::format("{} {} must be more than 0", flag, text));
}

}  // namespace tutti::tool
