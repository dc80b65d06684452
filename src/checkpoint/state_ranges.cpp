#include "checkpoint/state_ranges.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <map>
#include <set>

namespace tutti::checkpoint {
namespace {

constexpr std::int64_t kMostElements = std::int64_t{1}
                                       << 56;  // of a tensor; products stay whole numbers

std::optional<std::size_t> number(std::string_view text) {
  std::size_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size()) return {};
  if (text.size() > 1 && text.front() == '0') return {};  // each number has one spelling
  return value;
}

// What is behind the last '|', which goes with it.
std::optional<std::string_view> take_last(std::string_view& text) {
  const std::size_t bar = text.rfind('|');
  if (bar == text.npos) return {};
  const std::string_view last = text.substr(bar + 1);
  text = text.substr(0, bar);
  return last;
}

// "[3,120]", from the beginning of `text`, which it goes from.
std::optional<std::vector<std::int64_t>> take_list(std::string_view& text) {
  std::vector<std::int64_t> numbers;
  const std::size_t end = text.find(']');
  if (!text.starts_with('[') || end == text.npos) return {};
  for (std::string_view rest = text.substr(1, end - 1);;) {
    const std::size_t comma = rest.find(',');
    const auto value = number(rest.substr(0, comma));
    if (!value || *value > static_cast<std::size_t>(kMostElements)) return {};
    numbers.push_back(static_cast<std::int64_t>(*value));
    if (comma == rest.npos) break;
    rest.remove_prefix(comma + 1);
  }
  text.remove_prefix(end + 1);
  return numbers;
}

std::optional<train::TensorBox> parse_box(std::string_view text) {
  auto whole = take_list(text);
  auto first = whole ? take_list(text) : whole;
  auto extent = first ? take_list(text) : first;
  if (!extent || !text.empty()) return {};
  return train::TensorBox{*std::move(whole), *std::move(first), *std::move(extent)};
}

// Whether the box can be, and has the elements of the piece.
bool fits(const train::TensorBox& box, const PieceName& piece) {
  if (box.first.size() != box.whole.size() || box.extent.size() != box.whole.size()) return false;
  std::int64_t elements = 1;
  for (std::size_t d = 0; d < box.whole.size(); ++d)
    if (box.whole[d] == 0 || box.first[d] + box.extent[d] > box.whole[d] ||
        __builtin_mul_overflow(elements, box.whole[d], &elements) || elements > kMostElements)
      return false;
  return piece.first + piece.count <= train::count_of(box.extent);
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

std::string to_text(const PieceName& name) {
  std::string box;
  if (!name.box.whole.empty())
    box = fmt::format("[{}][{}][{}]|", fmt::join(name.box.whole, ","),
                      fmt::join(name.box.first, ","), fmt::join(name.box.extent, ","));
  return fmt::format("{}|{}|{}{}:{}", name.tensor, name.state, box, name.first, name.count);
}

// From the right: a tensor's name may have any letters. A state's has letters and underlines, so that a
// box cannot be taken for one.
std::optional<PieceName> parse_piece_name(std::string_view name) {
  PieceName piece;
  const auto range = take_last(name);
  const std::size_t colon = range ? range->find(':') : std::string_view::npos;
  if (colon == std::string_view::npos) return {};
  const auto first = number(range->substr(0, colon));
  const auto count = number(range->substr(colon + 1));
  if (!first || !count || *first + *count < *first) return {};
  piece.first = *first;
  piece.count = *count;
  auto state = take_last(name);
  if (state && state->starts_with('[')) {
    auto box = parse_box(*state);
    if (!box || !fits(*box, piece)) return {};
    piece.box = *std::move(box);
    state = take_last(name);
  }
  if (!state || state->empty() || name.empty()) return {};
  piece.state = *state;
  piece.tensor = name;
  return piece;
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

}  // namespace tutti::checkpoint
