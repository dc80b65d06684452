#include "engine/early_messages.hpp"

namespace tutti::engine {

transport::Payload EarlyMessages::Message::payload() const {
  transport::Payload payload{segment.lease != 0 ? segment.view : segment.small.data(),
                             segment.lease, false};
  if (!control.empty()) payload.data = reinterpret_cast<const std::byte*>(control.data());
  return payload;
}

bool EarlyMessages::keep(int peer, const transport::Header& header,
                         const transport::Payload& payload) {
  Peer& of_peer = peers_[static_cast<std::size_t>(peer)];
  if (of_peer.messages >= kMostOfPeer || header.bytes > kMostBytesOfPeer - of_peer.bytes)
    return false;
  Message message{peer, header, {}, {}};
  if (payload.lease == 0 && header.bytes > transport::kInlineBytes)
    message.control.assign(reinterpret_cast<const char*>(payload.data), header.bytes);
  else
    message.segment = Segment::keep(header, payload);
  by_channel_[header.channel].push_back(std::move(message));
  ++of_peer.messages;
  of_peer.bytes += header.bytes;
  return true;
}

std::vector<EarlyMessages::Message> EarlyMessages::take(std::uint32_t channel) {
  const auto at = by_channel_.find(channel);
  if (at == by_channel_.end()) return {};
  std::vector<Message> messages = std::move(at->second);
  by_channel_.erase(at);
  for (const Message& message : messages) {
    Peer& of_peer = peers_[static_cast<std::size_t>(message.peer)];
    --of_peer.messages;
    of_peer.bytes -= message.header.bytes;
  }
  return messages;
}

}  // namespace tutti::engine
