#include "engine/uplink.hpp"

#include <cstring>

namespace tutti::engine {

using transport::MessageKind;

void Uplink::announce(const Launch& launch, std::uint64_t sequence) {
  transport::Link& link = members_.link_to(peer());
  if (!std::exchange(introduced_, true)) {
    const std::string words = encode_introduction(launch.order, members_.options().members);
    const auto header = transport::header_for(MessageKind::meet, members_.channel(), 0);
    (void)link.send(header, words.data(), words.size(), 0);
  }
  const auto header = transport::header_for(MessageKind::arrive, members_.channel(), sequence);
  (void)link.send(header, &launch.fingerprint, sizeof launch.fingerprint, 0);
}

std::string encode_introduction(ReductionOrder order, const std::vector<int>& members) {
  std::string words;
  const auto add = [&](std::uint32_t number) {
    words.append(reinterpret_cast<const char*>(&number), sizeof number);
  };
  add(static_cast<std::uint32_t>(order));
  for (const int member : members) add(static_cast<std::uint32_t>(member));
  return words;
}

std::optional<Introduction> decode_introduction(std::string_view bytes) {
  std::vector<std::uint32_t> numbers(bytes.size() / sizeof(std::uint32_t));
  if (numbers.size() < 3 || bytes.size() % sizeof(std::uint32_t) != 0) return std::nullopt;
  std::memcpy(numbers.data(), bytes.data(), bytes.size());
  if (numbers[0] > static_cast<std::uint32_t>(ReductionOrder::tree)) return std::nullopt;
  Introduction said;
  said.order = static_cast<ReductionOrder>(numbers[0]);
  for (std::size_t i = 1; i < numbers.size(); ++i)
    said.members.push_back(static_cast<int>(numbers[i]));
  return said;
}

}  // namespace tutti::engine
