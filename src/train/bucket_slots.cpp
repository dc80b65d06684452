#include "train/bucket_slots.hpp"

namespace tutti::train {

Status BucketSlots::make_pool(std::size_t bytes) {
  pool_ = SymmetricPool();  // two at once would take twice the memory
  auto pool = SymmetricPool::create(group_, bytes, workplace_->device());
  if (!pool.ok()) return pool.status();
  pool_ = *std::move(pool);
  return {};
}

bool BucketSlots::has_room(std::size_t bytes) const {
  if (pool_.bytes() > 0) return bytes <= pool_.largest_free();
  return beside_->load(std::memory_order_relaxed) + bytes <= budget_bytes_;
}

Result<SymmetricMemory> BucketSlots::take(std::size_t bytes) {
  if (bytes <= pool_.largest_free()) return pool_.take(bytes);
  return take_beside(bytes);
}

Result<SymmetricMemory> BucketSlots::take_beside(std::size_t bytes) {
  auto memory = workplace_->allocate((bytes + sizeof(float) - 1) / sizeof(float));
  if (!memory) return workplace_->status();
  beside_->fetch_add(bytes, std::memory_order_relaxed);
  float* data = memory.get();
  const auto give_back = [beside = beside_, bytes, memory = std::move(memory)](void*) {
    beside->fetch_sub(bytes, std::memory_order_relaxed);
  };
  return SymmetricMemory{data, bytes, std::shared_ptr<void>(data, give_back)};
}

}  // namespace tutti::train
