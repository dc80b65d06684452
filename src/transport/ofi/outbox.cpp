#include "transport/ofi/outbox.hpp"

#include "transport/ofi/frame.hpp"

namespace tutti::transport::ofi {
namespace {

std::size_t size_of(const Outgoing& message) { return sizeof(FrameHeader) + message.header.bytes; }

}  // namespace

std::size_t Outbox::bytes_before(Urgency urgency) const {
  std::size_t bytes = 0;
  for (auto each = static_cast<std::size_t>(urgency); each < bytes_.size(); ++each)
    bytes += bytes_[each];
  return bytes;
}

// Before the first that gives way, behind everything of the same channel.
void Outbox::push(Outgoing message) {
  bytes_[static_cast<std::size_t>(message.urgency)] += size_of(message);
  std::size_t place = waiting_.size();
  while (place > 0 && waiting_[place - 1].header.channel != message.header.channel) --place;
  while (place < waiting_.size() && !waiting_[place].gives_way_to(message)) ++place;
  waiting_.insert(waiting_.begin() + static_cast<std::ptrdiff_t>(place), std::move(message));
}

Outgoing Outbox::pop() {
  Outgoing message = std::move(waiting_.front());
  waiting_.pop_front();
  bytes_[static_cast<std::size_t>(message.urgency)] -= size_of(message);
  return message;
}

void Outbox::clear() {
  waiting_.clear();
  bytes_ = {};
}

}  // namespace tutti::transport::ofi
