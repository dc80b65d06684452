#include "transport/ofi/enrolled.hpp"

#include <cstring>
#include <mutex>

#include "core/auth.hpp"

namespace tutti::transport::ofi {
namespace {

// Where the provider leaves the choice to us, nobody shall guess it.
std::uint64_t unguessable() {
  std::uint64_t number = 0;
  const std::string bytes = random_bytes(sizeof number);
  std::memcpy(&number, bytes.data(), sizeof number);
  return number;
}

}  // namespace

Result<std::shared_ptr<Enrolled>> Enrolled::make(const Rails& rails, Mapping mapping) {
  std::shared_ptr<Enrolled> made(new Enrolled(std::move(mapping)));
  for (const auto& rail : rails) {
    auto known = rail->enrol(made->data(), made->bytes(), unguessable());
    if (!known.ok()) return known.status();
    made->known_.push_back(std::move(*known));
  }
  return made;
}

RemoteKey Enrolled::remote(std::size_t rail, const std::byte* at) const {
  RemoteKey remote = known_[rail].remote;
  remote.address += static_cast<std::uint64_t>(at - data());
  return remote;
}

SlotPool::SlotPool(const Rails& rails, std::size_t slot_bytes, std::size_t slots_at_once)
    : rails_(rails), slot_bytes_(slot_bytes), slots_at_once_(slots_at_once) {}

Place SlotPool::take() {
  std::lock_guard lock(lock_);
  if (free_.empty() && !grow()) return {};
  const std::uint64_t slot = free_.back();
  free_.pop_back();
  const auto& chunk = chunks_[(slot - 1) / slots_at_once_];
  return {chunk->data() + (slot - 1) % slots_at_once_ * slot_bytes_, chunk, slot};
}

void SlotPool::release(std::uint64_t slot) {
  std::lock_guard lock(lock_);
  if (slot != 0 && slot <= chunks_.size() * slots_at_once_) free_.push_back(slot);
}

bool SlotPool::grow() {
  auto mapping = Mapping::anonymous(slots_at_once_ * slot_bytes_);
  if (!mapping.ok()) return false;
  // Some devices pin only what is there (FI_MR_ALLOCATED).
  std::memset(mapping->data(), 0, mapping->bytes());
  auto chunk = Enrolled::make(rails_, std::move(*mapping));
  if (!chunk.ok()) return false;
  chunks_.push_back(std::move(*chunk));
  for (std::uint64_t left = slots_at_once_; left > 0; --left)
    free_.push_back((chunks_.size() - 1) * slots_at_once_ + left);
  return true;
}

}  // namespace tutti::transport::ofi
