#include "tool/run/hosts.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "core/words.hpp"

namespace tutti::tool {
namespace {

constexpr int kMostPlaces = 1 << 20;

Status bad_host(std::string_view word, std::string_view why) {
  return {Code::invalid_argument, fmt::format("'{}' is not a host: {}", word, why)};
}

Result<int> parse_places(std::string_view word, std::string_view number) {
  const auto places = parse_integer(number);
  if (!places.ok() || *places < 1 || *places > kMostPlaces)
    return bad_host(word, fmt::format("'{}' is not a number of ranks", number));
  return static_cast<int>(*places);
}

// "a", "a:4", "user@a:4", "[::1]:4".
Result<Host> parse_host(std::string_view word) {
  Host host;
  const std::size_t bracket = word.rfind(']');
  const std::size_t colon = word.find(':', bracket == std::string_view::npos ? 0 : bracket);
  host.name = word.substr(0, colon);
  // A name that begins with - would be an option of the remote shell.
  if (host.name.empty() || host.name.front() == '-') return bad_host(word, "it has no name");
  if (host.name.find_first_of(" \t'\"\\$`;&|<>()") != std::string::npos)
    return bad_host(word, "its name has letters that no host has");
  if (colon == std::string_view::npos) return host;
  const auto places = parse_places(word, word.substr(colon + 1));
  if (!places.ok()) return places.status();
  host.ranks = *places;
  return host;
}

// "a:4" or "a slots=4".
Result<Host> parse_line(std::string_view line) {
  auto host = Result<Host>(bad_host(line, "it has no name"));
  bool first = true;
  for (const std::string_view word : split_words(line, ' ')) {
    constexpr std::string_view kSlots = "slots=";
    if (first) {
      host = parse_host(word);
      if (!host.ok()) return host;
    } else if (word.starts_with(kSlots)) {
      const auto places = parse_places(line, word.substr(kSlots.size()));
      if (!places.ok()) return places.status();
      host->ranks = *places;
    } else {
      return bad_host(line, fmt::format("after its name stands slots=N, not '{}'", word));
    }
    first = false;
  }
  return host;
}

void add(std::vector<Host>& hosts, const Host& host) {
  const auto same = std::find_if(hosts.begin(), hosts.end(),
                                 [&](const Host& other) { return other.name == host.name; });
  if (same == hosts.end())
    hosts.push_back(host);
  else
    same->ranks += host.ranks;
}

}  // namespace

Result<std::vector<Host>> parse_hosts(std::string_view list) {
  std::vector<Host> hosts;
  for (const std::string_view word : split_words(list, ',')) {
    const auto host = parse_host(word);
    if (!host.ok()) return host.status();
    add(hosts, *host);
  }
  if (hosts.empty()) return Status(Code::invalid_argument, "there is no host in the list");
  return hosts;
}

Result<std::vector<Host>> parse_hostfile(std::string_view text) {
  std::vector<Host> hosts;
  int number = 0;
  while (!text.empty()) {
    const std::size_t end = text.find('\n');
    std::string line(text.substr(0, std::min(end, text.find('#'))));
    text.remove_prefix(end == std::string_view::npos ? text.size() : end + 1);
    ++number;
    std::replace_if(
        line.begin(), line.end(), [](char c) { return c == '\t' || c == '\r'; }, ' ');
    if (line.find_first_not_of(' ') == std::string::npos) continue;
    const auto host = parse_line(line);
    if (!host.ok()) return host.status().annotate(fmt::format("line {}", number));
    add(hosts, *host);
  }
  if (hosts.empty()) return Status(Code::invalid_argument, "there is no host in the file");
  return hosts;
}

Result<std::vector<Host>> take_places(std::vector<Host> hosts, int ranks) {
  int left = ranks;
  for (Host& host : hosts) {
    host.ranks = std::min(host.ranks, left);
    left -= host.ranks;
  }
  if (left > 0)
    return Status(Code::invalid_argument,
                  fmt::format("-n {} is more than the {} places of the hosts; give them more "
                              "(NAME:N)",
                              ranks, ranks - left));
  std::erase_if(hosts, [](const Host& host) { return host.ranks == 0; });
  return hosts;
}

std::string shell_name_of(const Host& host) {
  std::string name = host.name;
  std::erase_if(name, [](char c) { return c == '[' || c == ']'; });
  return name;
}

std::string address_of(const Host& host) {
  const std::size_t at = host.name.rfind('@');
  return at == std::string::npos ? host.name : host.name.substr(at + 1);
}

}  // namespace tutti::tool
