#include "engine/launched.hpp"

#include <fmt/format.h>

#include <utility>

#include "engine/numbers.hpp"

namespace tutti::engine {

// Those who have not called it; then those whose stream has not come to it; then nobody in particular.
std::vector<int> DeviceAttendance::waiting_for() const {
  std::vector<int> absent;
  std::vector<int> behind;
  for (int peer = 0; peer < side_.size(); ++peer) {
    if (!side_.has_board(peer)) continue;
    if (!side_.has_called(peer, ticket_))
      absent.push_back(peer);
    else if (!side_.has_entered(peer, ticket_))
      behind.push_back(peer);
  }
  return absent.empty() ? behind : absent;
}

std::string DeviceAttendance::trouble(int peer) const {
  if (side_.has_board(peer) && side_.has_entered(peer, ticket_)) return "joined but did not finish";
  return "called, but its GPU is still busy with what was put into the stream before it, or hangs, and "
         "did not come to";
}

bool Launched::take_done(Operation& operation) {
  if (operations_.empty() || side_->is_aborted()) return false;
  const std::uint64_t ticket = operations_.front().ticket;
  if (!side_->is_done(ticket)) return false;
  // A work that failed lets go whoever waits for it on the device.
  const auto& works = operations_.front().launch->after;
  if (works && !works->all_clear()) return false;
  // A launch that found something wrong has done nothing, and says so before it says that it is done.
  const DeviceSide::Finding finding = side_->finding();
  if (finding.fault != cuda::Fault::none && finding.ticket <= ticket) return false;
  return take_any(operation);
}

bool Launched::take_any(Operation& operation) {
  if (operations_.empty()) return false;
  operation = std::move(operations_.front());
  operations_.pop_front();
  return true;
}

Status Launched::trouble() const {
  if (operations_.empty()) return {};
  const Operation& operation = operations_.front();
  const Status status = side_->trouble(operation.ticket);
  if (status.ok()) return {};
  const cuda::DeviceFacts& facts = side_->device().facts();
  return {
      status.code(),
      fmt::format("{} of rank {} is on cuda:{} ({}), whose context is lost: {}{}",
                  numbered(to_string(operation.launch->collective), operation.sequence),
                  side_->rank(), facts.ordinal, facts.name, status.message(),
                  facts.under_mps ? "; under MPS another process that died with work on the GPU "
                                    "takes those of all others along"
                                  : ""),
      {side_->rank(), side_->rank(), number_of(operation.sequence)}};
}

}  // namespace tutti::engine
