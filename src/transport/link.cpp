#include "transport/link.hpp"

namespace tutti::transport {

std::string_view to_string(LinkKind kind) noexcept {
  switch (kind) {
    case LinkKind::inproc: return "inproc";
    case LinkKind::shm: return "shm";
    case LinkKind::tcp: return "tcp";
    case LinkKind::sim: return "sim";
  }
  return "unknown";
}

}  // namespace tutti::transport
