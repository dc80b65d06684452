#include "engine/told_status.hpp"

#include <cstdint>

#include "core/bytes.hpp"

namespace tutti::engine {
namespace {

// Of a status that is told to others; the rest is cut off.
constexpr std::size_t kMaxToldBytes = 3500;

}  // namespace

std::string encode(const Status& status) {
  ByteWriter writer;
  writer.put(static_cast<std::uint8_t>(status.code()));
  writer.put(static_cast<std::int32_t>(status.rank()));
  writer.put(static_cast<std::int32_t>(status.peer()));
  writer.put(status.sequence());
  writer.put_string(std::string_view(status.message()).substr(0, kMaxToldBytes));
  return writer.take();
}

Status decode(std::string_view bytes) {
  ByteReader reader(bytes);
  std::uint8_t code = 0;
  std::int32_t rank = -1;
  std::int32_t peer = -1;
  std::uint64_t sequence = 0;
  std::string message;
  if (!reader.get(code) || !reader.get(rank) || !reader.get(peer) || !reader.get(sequence) ||
      !reader.get_string(message) || code == 0 || code > static_cast<std::uint8_t>(Code::internal))
    return {Code::corrupt, "a rank reported a failure that cannot be read"};
  return {static_cast<Code>(code), std::move(message), {rank, peer, sequence}};
}

}  // namespace tutti::engine
