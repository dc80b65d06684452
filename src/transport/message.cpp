#include "transport/message.hpp"

namespace tutti::transport {

std::string_view to_string(MessageKind kind) noexcept {
  switch (kind) {
    case MessageKind::arrive: return "arrive";
    case MessageKind::data: return "data";
    case MessageKind::eager: return "eager";
    case MessageKind::request: return "request";
    case MessageKind::ready: return "ready";
    case MessageKind::bulk: return "bulk";
    case MessageKind::credit: return "credit";
    case MessageKind::query: return "query";
    case MessageKind::report: return "report";
    case MessageKind::abort: return "abort";
    case MessageKind::goodbye: return "goodbye";
    case MessageKind::bell: return "bell";
    case MessageKind::meet: return "meet";
    case MessageKind::view: return "view";
    case MessageKind::device: return "device";
    case MessageKind::news: return "news";
  }
  return "unknown";
}

namespace {

// What a message of a kind may be. kHold stays on its sender's side.
struct KindRules {
  bool known = false;
  std::uint8_t flags = 0;
  std::uint64_t most_bytes = 0;
  bool has_offset = false;
  bool has_extra = false;
};

KindRules rules_of(MessageKind kind, std::uint64_t most_bytes) noexcept {
  switch (kind) {
    case MessageKind::arrive: return {true, 0, kMaxControlBytes};
    case MessageKind::data: return {true, 0, most_bytes, true};
    case MessageKind::eager: return {true, kInternal, most_bytes, false, true};
    case MessageKind::request:
      return {true, kCancel | kInternal | kOffered, kMaxControlBytes, false, true};
    case MessageKind::ready: return {true, kRefuse | kTaken, 0};
    case MessageKind::bulk: return {true, 0, most_bytes, true};
    case MessageKind::credit: return {true, 0, 0, false, true};
    case MessageKind::query: return {true, 0, 0};
    case MessageKind::report: return {true, 0, kMaxControlBytes};
    case MessageKind::abort: return {true, 0, kMaxControlBytes};
    case MessageKind::goodbye: return {true, 0, 0};
    case MessageKind::bell: return {true, 0, kMaxControlBytes};
    case MessageKind::meet: return {true, 0, kMaxControlBytes, false, true};
    case MessageKind::view: return {true, 0, kMaxControlBytes};
    case MessageKind::device: return {true, 0, kMaxControlBytes};
    case MessageKind::news: return {true, 0, kMaxControlBytes, false, true};
  }
  return {};
}

}  // namespace

const char* flaw_in(const Header& header, std::uint64_t most_bytes) noexcept {
  const KindRules rules = rules_of(header.kind, most_bytes);
  if (!rules.known) return "a message of a kind that does not exist";
  if ((header.flags & ~rules.flags) != 0) return "a message with flags that its kind does not have";
  if (header.bytes > rules.most_bytes) return "a message that is longer than its kind may be";
  if (header.offset != 0 && !rules.has_offset) return "a place in a message that has no pieces";
  if (header.offset + header.bytes < header.offset) return "a piece that ends before it begins";
  if (header.extra != 0 && !rules.has_extra) return "a number that its kind does not have";
  return nullptr;
}

}  // namespace tutti::transport
