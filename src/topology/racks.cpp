#include "topology/racks.hpp"

#include <fmt/format.h>

#include <vector>

#include "core/words.hpp"

namespace tutti::topology {
namespace {

constexpr std::int64_t kMostInRange = 100000;

Status at_line(int line, std::string what) {
  return {Code::invalid_argument, fmt::format("line {}: {}", line, std::move(what))};
}

std::string_view trimmed(std::string_view text) {
  const auto begin = text.find_first_not_of(" \t\r");
  if (begin == std::string_view::npos) return {};
  return text.substr(begin, text.find_last_not_of(" \t\r") + 1 - begin);
}

// node[01-16] is sixteen names, of as many digits as the first number.
Result<std::vector<std::string>> names_of(std::string_view word) {
  const std::size_t open = word.find('[');
  if (open == std::string_view::npos) return std::vector<std::string>{std::string(word)};
  const std::size_t close = word.find(']', open);
  const auto refuse = [&] {
    return Status(Code::invalid_argument,
                  fmt::format("'{}' is no range of hosts such as node[01-16]", word));
  };
  if (close == std::string_view::npos) return refuse();
  const std::string_view range = word.substr(open + 1, close - open - 1);
  const std::size_t dash = range.find('-');
  if (dash == std::string_view::npos) return refuse();
  const auto first = parse_integer(range.substr(0, dash));
  const auto last = parse_integer(range.substr(dash + 1));
  if (!first.ok() || !last.ok() || *first < 0 || *last < *first || *last - *first >= kMostInRange)
    return refuse();
  std::vector<std::string> names;
  for (auto number = *first; number <= *last; ++number)
    names.push_back(
        fmt::format("{}{:0{}}{}", word.substr(0, open), number, dash, word.substr(close + 1)));
  return names;
}

}  // namespace

Status Racks::add_host(const std::string& host, const std::string& rack, int line) {
  const auto [at, is_new] = hosts_.try_emplace(host, Entry{rack, line});
  if (is_new) return {};
  return at_line(line, fmt::format("host {} was in rack {} in line {}; a host stands in one rack",
                                   host, at->second.rack, at->second.line));
}

Status Racks::add_line(std::string_view line, int number) {
  line = trimmed(line.substr(0, line.find('#')));
  if (line.empty()) return {};
  const std::size_t colon = line.find(':');
  if (colon == std::string_view::npos)
    return at_line(number, fmt::format("'{}' is not of the form rack: host host", line));
  const std::string rack(trimmed(line.substr(0, colon)));
  if (rack.empty() || rack.size() > kLongestRack || rack.find_first_of(" \t") != std::string::npos)
    return at_line(number, fmt::format("'{}' is no name of a rack: one word of 1 … {} bytes", rack,
                                       kLongestRack));
  std::string hosts(line.substr(colon + 1));
  for (char& letter : hosts)
    if (letter == '\t') letter = ' ';
  for (const std::string_view word : split_words(hosts, ' ')) {
    auto names = names_of(word);
    if (!names.ok()) return at_line(number, names.status().message());
    for (const std::string& name : *names)
      if (Status status = add_host(name, rack, number); !status.ok()) return status;
  }
  return {};
}

Result<Racks> Racks::parse(std::string_view text) {
  Racks racks;
  for (int number = 1; !text.empty(); ++number) {
    const std::size_t end = text.find('\n');
    if (Status status = racks.add_line(text.substr(0, end), number); !status.ok()) return status;
    text.remove_prefix(end == std::string_view::npos ? text.size() : end + 1);
  }
  return racks;
}

std::string Racks::rack_of(const std::string& host) const {
  for (const std::string& name : {host, host.substr(0, host.find('.'))})
    if (const auto at = hosts_.find(name); at != hosts_.end()) return at->second.rack;
  return {};
}

}  // namespace tutti::topology
