// The text form of a topology: docs/formats/topology.md.
#include <fmt/format.h>

#include <charconv>

#include "topology/topology.hpp"

namespace tutti::topology {
namespace {

constexpr std::string_view kHead = "topology 1";
// A line that asks for more ranks than this is a slip, and must not cost the memory it names.
constexpr int kMaxRanks = 1 << 20;

std::string seat_text(const Seat& seat) {
  std::string text = fmt::format("host {}", seat.host);
  if (seat.numa >= 0) text += fmt::format(" numa {}", seat.numa);
  if (seat.l3 >= 0) text += fmt::format(" l3 {}", seat.l3);
  return text;
}

std::vector<std::string_view> split_words(std::string_view line) {
  std::vector<std::string_view> words;
  line = line.substr(0, line.find('#'));
  for (std::size_t at = 0; (at = line.find_first_not_of(" \t\r", at)) != line.npos;) {
    const std::size_t end = std::min(line.find_first_of(" \t\r", at), line.size());
    words.push_back(line.substr(at, end - at));
    at = end;
  }
  return words;
}

bool to_number(std::string_view word, int& number) {
  const auto [end, error] = std::from_chars(word.data(), word.data() + word.size(), number);
  return error == std::errc() && end == word.data() + word.size() && number >= 0;
}

bool is_kind(std::string_view word) {
  constexpr std::string_view kLetters = "abcdefghijklmnopqrstuvwxyz0123456789_";
  return !word.empty() && word.find_first_not_of(kLetters) == word.npos;
}

// Reads line after line; an empty answer means that the line was fine, else what is wrong with it.
class Parser {
 public:
  std::string take(const std::vector<std::string_view>& words) {
    if (words[0] == "topology") return take_head(words);
    if (!seen_head_) return fmt::format("the first line must be '{}'", kHead);
    if (words[0] == "links") return take_links(words);
    if (words[0] == "rank") return take_ranks(words);
    if (words[0] == "link") return take_odd(words);
    return fmt::format("'{}' begins no line; 'links', 'rank' and 'link' do", words[0]);
  }
  std::string finish() const {
    if (!seen_head_) return fmt::format("the first line must be '{}'", kHead);
    return {};
  }
  Topology topology;

 private:
  std::string take_head(const std::vector<std::string_view>& words) {
    if (seen_head_) return "there is a first line already";
    if (words.size() != 2 || words[1] != "1") return "this version reads 'topology 1' only";
    seen_head_ = true;
    return {};
  }

  std::string take_links(const std::vector<std::string_view>& words) {
    const bool shape = words.size() == 5 && words[1] == "inside" && words[3] == "between";
    if (!shape || !is_kind(words[2]) || !is_kind(words[4]))
      return "expected 'links inside KIND between KIND'";
    if (!topology.odd.empty()) return "'links' must come before the first 'link'";
    topology.inside = words[2];
    topology.between = words[4];
    return {};
  }

  std::string take_ranks(const std::vector<std::string_view>& words) {
    int first = 0;
    if (words.size() < 4 || words.size() % 2 != 0)
      return "expected 'rank N host H [numa M] [l3 L]' or 'rank N-M host …'";
    const std::size_t dash = words[1].find('-');
    if (!to_number(words[1].substr(0, dash), first))
      return fmt::format("'{}' is no rank and no range of ranks", words[1]);
    int last = first;
    if (dash != std::string_view::npos &&
        (!to_number(words[1].substr(dash + 1), last) || last < first))
      return fmt::format("'{}' is no range of ranks", words[1]);
    if (first != topology.size())
      return fmt::format("expected rank {} next, found {}", topology.size(), first);
    if (last >= kMaxRanks) return fmt::format("at most {} ranks are possible", kMaxRanks);
    Seat seat;
    if (std::string wrong = take_seat(words, seat); !wrong.empty()) return wrong;
    topology.ranks.resize(static_cast<std::size_t>(last) + 1, seat);
    return {};
  }

  static std::string take_seat(const std::vector<std::string_view>& words, Seat& seat) {
    bool has_host = false;
    for (std::size_t i = 2; i < words.size(); i += 2) {
      int* field = words[i] == "host"   ? &seat.host
                   : words[i] == "numa" ? &seat.numa
                   : words[i] == "l3"   ? &seat.l3
                                        : nullptr;
      if (field == nullptr) return fmt::format("'{}' is none of host, numa, l3", words[i]);
      if (!to_number(words[i + 1], *field))
        return fmt::format("'{}' is no index for {}", words[i + 1], words[i]);
      has_host = has_host || field == &seat.host;
    }
    return has_host ? "" : "a rank needs a host";
  }

  std::string take_odd(const std::vector<std::string_view>& words) {
    int a = 0;
    int b = 0;
    if (words.size() != 4 || !to_number(words[1], a) || !to_number(words[2], b) ||
        !is_kind(words[3]))
      return "expected 'link A B KIND'";
    if (a >= topology.size() || b >= topology.size())
      return fmt::format("only ranks 0 to {} were named before this line", topology.size() - 1);
    if (a == b) return fmt::format("rank {} has no link to itself", a);
    topology.set_link(a, b, words[3]);
    return {};
  }

  bool seen_head_ = false;
};

Status wrong_text(int line, const std::string& what) {
  return Status(
      Code::invalid_argument,
      fmt::format("topology text, line {}: {} (see docs/formats/topology.md)", line, what));
}

}  // namespace

std::string to_text(const Topology& topology) {
  std::string text =
      fmt::format("{}\nlinks inside {} between {}\n", kHead, topology.inside, topology.between);
  for (int first = 0; first < topology.size();) {
    const Seat& seat = topology.ranks[first];
    int last = first;
    while (last + 1 < topology.size() && topology.ranks[last + 1] == seat) ++last;
    const std::string more = first == last ? "" : fmt::format("-{}", last);
    text += fmt::format("rank {}{} {}\n", first, more, seat_text(seat));
    first = last + 1;
  }
  for (const OddLink& link : topology.odd)
    text += fmt::format("link {} {} {}\n", link.a, link.b, link.kind);
  return text;
}

Result<Topology> parse(std::string_view text) {
  Parser parser;
  int number = 0;
  while (!text.empty()) {
    const std::size_t end = std::min(text.find('\n'), text.size());
    const auto words = split_words(text.substr(0, end));
    text.remove_prefix(std::min(end + 1, text.size()));
    ++number;
    if (words.empty()) continue;
    if (std::string wrong = parser.take(words); !wrong.empty()) return wrong_text(number, wrong);
  }
  if (std::string wrong = parser.finish(); !wrong.empty()) return wrong_text(number, wrong);
  return std::move(parser.topology);
}

}  // namespace tutti::topology
