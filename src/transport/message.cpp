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
  }
  return "unknown";
}

}  // namespace tutti::transport
