#include "checkpoint/state_ranges.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <set>

namespace tutti::checkpoint {
namespace {

std::optional<std::size_t> number(std::string_view text) {
  std::size_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size()) return {};
  if (text.size() > 1 && text.front() == '0') return {};  // each number has one spelling
  return value;
}

// A range that one rank keeps.
struct KeptRange {
  std::size_t first = 0;
  std::size_t end = 0;
  std::size_t rank = 0;
};
using Key = std::pair<std::size_t, std::string>;  // parameter, state

// Cuts [first, end) among `ranks`, evenly.
void cut(const Key& key, std::size_t first, std::size_t end, const std::vector<std::size_t>& ranks,
         std::vector<std::vector<StateRange>>& shares) {
  const std::size_t count = end - first;
  for (std::size_t i = 0; i < ranks.size(); ++i) {
    const std::size_t from = first + count / ranks.size() * i + std::min(i, count % ranks.size());
    const std::size_t size = count / ranks.size() + (i < count % ranks.size() ? 1 : 0);
    if (size > 0) shares[ranks[i]].push_back({key.first, key.second, from, size});
  }
}

// Between two neighbouring borders the set of ranks that keep the elements is the same.
Status share_state(const Key& key, const std::vector<KeptRange>& kept, std::size_t count,
                   std::vector<std::vector<StateRange>>& shares) {
  std::set<std::size_t> borders{0, count};
  for (const KeptRange& range : kept) borders.insert({range.first, range.end});
  if (*borders.rbegin() > count)
    return {Code::internal,
            fmt::format("{} of parameter {} is kept beyond its end", key.second, key.first)};
  for (auto at = borders.begin(); std::next(at) != borders.end(); ++at) {
    const std::size_t first = *at;
    const std::size_t end = *std::next(at);
    std::vector<std::size_t> ranks;
    for (const KeptRange& range : kept)
      if (range.first <= first && range.end >= end) ranks.push_back(range.rank);
    if (ranks.empty())
      return {Code::internal, fmt::format("elements {} to {} of {} of parameter {} are kept by no "
                                          "rank",
                                          first, end, key.second, key.first)};
    cut(key, first, end, ranks, shares);
  }
  return {};
}

}  // namespace

std::string piece_name(std::string_view parameter, std::string_view state, std::size_t first,
                       std::size_t count) {
  return fmt::format("{}|{}|{}:{}", parameter, state, first, count);
}

// From the right: a parameter's name may have any letters.
std::optional<PieceName> parse_piece_name(std::string_view name) {
  const std::size_t colon = name.rfind(':');
  const std::size_t range = name.rfind('|');
  if (colon == name.npos || range == name.npos || range == 0 || colon < range) return {};
  const std::size_t state = name.rfind('|', range - 1);
  if (state == name.npos || state == 0 || state + 1 == range) return {};
  const auto first = number(name.substr(range + 1, colon - range - 1));
  const auto count = number(name.substr(colon + 1));
  if (!first || !count || *first + *count < *first) return {};
  return PieceName{std::string(name.substr(0, state)),
                   std::string(name.substr(state + 1, range - state - 1)), *first, *count};
}

std::string to_text(std::span<const StateRange> ranges) {
  std::string text;
  for (const StateRange& range : ranges)
    text += fmt::format("{} {} {} {}\n", range.parameter, range.state, range.first, range.count);
  return text;
}

Result<std::vector<StateRange>> parse_ranges(std::string_view text) {
  std::vector<StateRange> ranges;
  while (!text.empty()) {
    const std::string_view line = text.substr(0, text.find('\n'));
    text.remove_prefix(std::min(text.size(), line.size() + 1));
    const std::size_t a = line.find(' ');
    const std::size_t b = a == line.npos ? a : line.find(' ', a + 1);
    const std::size_t c = b == line.npos ? b : line.find(' ', b + 1);
    if (c == line.npos) return Status(Code::internal, "a list of ranges cannot be read");
    const auto parameter = number(line.substr(0, a));
    const auto first = number(line.substr(b + 1, c - b - 1));
    const auto count = number(line.substr(c + 1));
    if (!parameter || !first || !count)
      return Status(Code::internal, "a list of ranges cannot be read");
    ranges.push_back({*parameter, std::string(line.substr(a + 1, b - a - 1)), *first, *count});
  }
  return ranges;
}

Result<std::vector<std::vector<StateRange>>> share_out(
    std::span<const std::vector<StateRange>> kept, std::span<const std::size_t> parameter_counts) {
  std::map<Key, std::vector<KeptRange>> states;
  for (std::size_t rank = 0; rank < kept.size(); ++rank)
    for (const StateRange& range : kept[rank]) {
      if (range.parameter >= parameter_counts.size())
        return Status(Code::internal, fmt::format("there is no parameter {}", range.parameter));
      if (range.count > 0)
        states[{range.parameter, range.state}].push_back({range.first, range.end(), rank});
    }
  std::vector<std::vector<StateRange>> shares(kept.size());
  for (const auto& [key, ranges] : states)
    if (Status status = share_state(key, ranges, parameter_counts[key.first], shares); !status.ok())
      return status;
  return shares;
}

bool StoredState::finish() {
  std::sort(pieces_.begin(), pieces_.end(),
            [](const Stored& a, const Stored& b) { return a.first < b.first; });
  for (std::size_t i = 1; i < pieces_.size(); ++i)
    if (pieces_[i].first < pieces_[i - 1].first + pieces_[i - 1].count) return false;
  return true;
}

std::vector<Stored> StoredState::overlapping(std::size_t first, std::size_t count) const {
  std::vector<Stored> found;
  for (const Stored& piece : pieces_)
    if (piece.first < first + count && first < piece.first + piece.count) found.push_back(piece);
  return found;
}

bool StoredState::covers(std::size_t first, std::size_t count) const {
  std::size_t covered = first;
  for (const Stored& piece : overlapping(first, count)) {
    if (piece.first > covered) return false;
    covered = piece.first + piece.count;
  }
  return covered >= first + count;
}

}  // namespace tutti::checkpoint
