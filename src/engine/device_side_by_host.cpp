// A collective whose ranks meet by their hosts: step by step, in the hands of whoever steps the group.
#include "engine/device_side.hpp"

namespace tutti::engine {

Status DeviceSide::begin_by_host(DeviceWork& work, const Launch& launch, std::uint64_t ticket) {
  Status status = follow(launch, stream_.get());
  if (times_) times_->begin(ticket, stream_.get());
  if (status.ok()) status = copy_staged(work, true, stream_.get());
  return status.ok() ? device().record(after(ticket), stream_.get()) : status;
}

Result<bool> DeviceSide::has_reached(std::uint64_t ticket) const {
  return device().has_happened(after(ticket));
}

void DeviceSide::enter_by_host(const DeviceWork& work, std::uint64_t ticket) {
  post(work, ticket);
  own().entered.store(ticket, std::memory_order_seq_cst);
}

bool DeviceSide::all_entered(std::uint64_t ticket) const {
  for (int peer = 0; peer < size(); ++peer)
    if (of(peer).entered.load(std::memory_order_acquire) < ticket) return false;
  return true;
}

// All addresses are known by now, and all calls were compared.
Status DeviceSide::work_by_host(DeviceWork& work, Dtype dtype, std::uint64_t ticket) {
  cuda::Phase& phase = work.phase;
  const cuda::Post* posts = own().posts[ticket % kDeviceRing];
  const auto resolve = [&](cuda::Place& place, bool target) {
    if (place.peer < 0) return;
    place.at += target ? posts[place.peer].target : posts[place.peer].source;
    place.peer = -1;
  };
  for (int peer = 0; peer < size(); ++peer)
    if (peer != rank() && posts[peer].tag != phase.tags[peer])
      return {Code::mismatch, "another call", {rank(), peer, 0}};
  for (int c = 0; c < phase.copy_count; ++c) resolve(phase.copies[c].from, false);
  for (int o = 0; o < phase.fold.operand_count; ++o) resolve(phase.fold.operands[o], false);
  for (int t = 0; t < phase.fold.target_count; ++t) resolve(phase.fold.targets[t], true);
  phase.enter = cuda::Enter::resolved;
  phase.leave = cuda::Leave::by_stream;
  Status status = device().launch(phase, dtype, blocks_for(work), stream_.get());
  return status.ok() ? device().record(after(ticket), stream_.get()) : status;
}

void DeviceSide::leave_by_host(std::uint64_t ticket) {
  own().left.store(ticket, std::memory_order_seq_cst);
}

bool DeviceSide::all_left(std::uint64_t ticket) const {
  for (int peer = 0; peer < size(); ++peer)
    if (of(peer).left.load(std::memory_order_acquire) < ticket) return false;
  return true;
}

Status DeviceSide::finish_by_host(const DeviceWork& work, std::uint64_t ticket) {
  if (Status status = copy_staged(work, false, stream_.get()); !status.ok()) return status;
  return finish(ticket, false, stream_.get());
}

void DeviceSide::end_on_host(std::uint64_t ticket) {
  own().done.store(ticket, std::memory_order_seq_cst);
  launched_.store(ticket, std::memory_order_release);
}

}  // namespace tutti::engine
