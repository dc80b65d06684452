#include "trace/trace_file.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cerrno>
#include <charconv>

#include "core/files.hpp"
#include "tutti/types.hpp"

namespace tutti::trace {
namespace {

// Times are added and subtracted, several at once: none may come near the end of 64 bits. 2^58 ns are
// nine years since a machine was started; unix time is behind 2^60 already.
constexpr std::int64_t kMostTime = std::int64_t{1} << 58;
constexpr std::int64_t kMostUnixTime = std::int64_t{1} << 61;
bool is_time(std::int64_t ns) { return ns > -kMostTime && ns < kMostTime; }

template <std::size_t Size>
std::string text_in(const char (&field)[Size]) {
  return {field, ::strnlen(field, Size)};
}

class Parser {
 public:
  Parser(const std::string& path, const std::string& bytes) : bytes_(bytes) { trace_.path = path; }

  Result<RankTrace> parse() {
    if (Status status = read_head(); !status.ok()) return status;
    std::size_t at = sizeof(FileHead);
    for (; at + sizeof(TraceEntry) <= bytes_.size(); at += sizeof(TraceEntry)) {
      TraceEntry entry;
      std::memcpy(&entry, bytes_.data() + at, sizeof entry);
      if (entry.kind == static_cast<std::uint8_t>(Kind::none)) break;
      if (Status status = take(entry, at); !status.ok()) return status;
    }
    trace_.cut_off = at != bytes_.size();
    if (Status status = check_rest(at); !status.ok()) return status;
    if (Status status = name_groups(); !status.ok()) return status;
    return std::move(trace_);
  }

 private:
  Status wrong(Code code, const std::string& what) const {
    return {code, fmt::format("{}: {}", trace_.path, what)};
  }
  Status corrupt(std::size_t at, const std::string& what) const {
    return wrong(Code::corrupt, fmt::format("{} at byte {}; the file is damaged", what, at));
  }

  Status read_head() {
    FileHead head;
    if (bytes_.empty()) return wrong(Code::corrupt, "the file is empty");
    if (bytes_.compare(0, std::min(bytes_.size(), sizeof kMagic), kMagic,
                       std::min(bytes_.size(), sizeof kMagic)) != 0)
      return wrong(Code::invalid_argument, "this is no trace of tutti");
    if (bytes_.size() < sizeof head)
      return wrong(Code::corrupt,
                   fmt::format("the file is cut off within its head ({} bytes)", bytes_.size()));
    std::memcpy(&head, bytes_.data(), sizeof head);
    if (head.version != kTraceVersion)
      return wrong(Code::invalid_argument,
                   fmt::format("a trace of version {}; this tool reads version {}", head.version,
                               kTraceVersion));
    if (head.check != check_of(head) || head.head_bytes != sizeof(FileHead) ||
        head.entry_bytes != sizeof(TraceEntry) || head.ranks < 1 || head.ranks > kMostRanks ||
        head.rank < 0 || head.rank >= head.ranks || !is_time(head.time_ns) ||
        head.unix_time_ns < 0 || head.unix_time_ns > kMostUnixTime)
      return corrupt(0, "the head does not agree with itself");
    trace_.rank = head.rank;
    trace_.ranks = head.ranks;
    trace_.pid = head.pid;
    trace_.job = text_in(head.job);
    trace_.host = text_in(head.host);
    trace_.clock = text_in(head.clock);
    trace_.unix_time_ns = head.unix_time_ns;
    trace_.time_ns = head.time_ns;
    return {};
  }

  Status take(const TraceEntry& entry, std::size_t at) {
    if (entry.check != check_of(entry)) return corrupt(at, "a wrong check sum");
    if (entry.kind >= kKinds) return corrupt(at, fmt::format("an entry of kind {}", entry.kind));
    const Kind kind = static_cast<Kind>(entry.kind);
    const bool has_times = kind != Kind::text && kind != Kind::group;
    if (has_times && entry.end < entry.begin)
      return corrupt(at, "an event that ends before it begins");
    if (has_times && (!is_time(entry.begin) || !is_time(entry.end)))
      return corrupt(at, "a time that no clock shows");
    if (entry.collective >= kCollectives || entry.algorithm >= kAlgorithms ||
        entry.dtype >= kDtypes || entry.reduce_op >= kReduceOps)
      return corrupt(at, "an unknown collective, algorithm, type or operation");
    if (entry.name != 0 && kind != Kind::text && trace_.texts.count(entry.name) == 0)
      return corrupt(at, "a name that was never given");
    switch (kind) {
      case Kind::none: break;
      case Kind::text: return take_text(entry, at);
      case Kind::group:
        trace_.groups[entry.channel] = {
            trace_.text(entry.name), trace_.text(static_cast<std::uint32_t>(entry.end)), {}};
        break;
      case Kind::collective: trace_.collectives.push_back(entry); break;
      case Kind::wait: trace_.waits.push_back(entry); break;
      case Kind::fold: trace_.folds.push_back(entry); break;
      case Kind::compute: trace_.compute.push_back(entry); break;
      case Kind::step: trace_.steps.push_back(entry); break;
      case Kind::counter: trace_.counters.push_back(entry); break;
      case Kind::clock: trace_.clock_offset = entry.begin; break;
      case Kind::device: trace_.device.push_back(entry); break;
      case Kind::bubble: trace_.bubbles.push_back(entry); break;
    }
    return {};
  }

  Status take_text(const TraceEntry& entry, std::size_t at) {
    if (entry.channel > kTextBytes) return corrupt(at, "a text that is too long");
    trace_.texts[entry.name].append(reinterpret_cast<const char*>(&entry) + kTextOffset,
                                    entry.channel);
    return {};
  }

  // Nothing but zeros may follow the last entry, apart from one that was cut in two.
  Status check_rest(std::size_t at) const {
    if (bytes_.size() - at < sizeof(TraceEntry)) return {};
    const auto odd =
        std::find_if(bytes_.begin() + static_cast<std::ptrdiff_t>(at + sizeof(TraceEntry)),
                     bytes_.end(), [](char byte) { return byte != 0; });
    if (odd == bytes_.end()) return {};
    return corrupt(at, "a gap");
  }

  Status name_groups() {
    for (auto& [channel, group] : trace_.groups) {
      auto ranks = ranks_of_text(group.members, trace_.ranks);
      if (!ranks)
        return wrong(Code::corrupt,
                     fmt::format("group '{}' has the members '{}'", group.name, group.members));
      group.ranks = *std::move(ranks);
    }
    for (const auto* entries : {&trace_.collectives, &trace_.folds, &trace_.waits, &trace_.device})
      for (const TraceEntry& entry : *entries)
        if (trace_.groups.count(entry.channel) == 0)
          return wrong(Code::corrupt, fmt::format("nothing says what group {} is", entry.channel));
    return {};
  }

  const std::string& bytes_;
  RankTrace trace_;
};

}  // namespace

const std::string& RankTrace::text(std::uint32_t number) const {
  static const std::string none;
  const auto at = texts.find(number);
  return at == texts.end() ? none : at->second;
}

std::optional<std::vector<int>> ranks_of_text(const std::string& text, int most) {
  std::vector<int> ranks;
  const char* at = text.data();
  const char* end = at + text.size();
  while (at < end) {
    int first = 0;
    auto read = std::from_chars(at, end, first);
    if (read.ec != std::errc()) return std::nullopt;
    int last = first;
    if (read.ptr < end && *read.ptr == '-') {
      read = std::from_chars(read.ptr + 1, end, last);
      if (read.ec != std::errc()) return std::nullopt;
    }
    if (first < 0 || last < first || last >= most) return std::nullopt;
    if (static_cast<std::size_t>(last - first) + ranks.size() >= static_cast<std::size_t>(most))
      return std::nullopt;
    for (int rank = first; rank <= last; ++rank) ranks.push_back(rank);
    at = read.ptr;
    if (at == end) break;
    if (*at++ != ',' || at == end) return std::nullopt;
  }
  return ranks;
}

Result<RankTrace> parse_trace(const std::string& path, const std::string& bytes) {
  return Parser(path, bytes).parse();
}

Result<RankTrace> read_trace(const std::string& path) {
  constexpr std::size_t kMostTraceBytes = std::size_t{4} << 30;  // days of a busy rank
  const auto bytes = read_file(path, kMostTraceBytes);
  if (!bytes.ok()) return bytes.status();
  return parse_trace(path, *bytes);
}

}  // namespace tutti::trace
