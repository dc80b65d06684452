// train/bucket_slots.hpp - memory for buckets that are whole only for a while.
//
// Slots are pieces of a pool of symmetric memory. It is made when the order of use is known, and with that
// how much is whole at once. Before that, and where a pass needs more than was foreseen, they are ordinary
// memory, which collectives take as well, only slower: whoever can wait for a slot asks for room first.
//
// Thread-safety  one thread at a time.
#pragma once

#include <atomic>
#include <memory>

#include "train/workplace.hpp"
#include "tutti/symmetric_pool.hpp"

namespace tutti::train {

class BucketSlots {
 public:
  // `budget_bytes`: room, as long as there is no pool.
  BucketSlots(std::shared_ptr<Group> group, std::shared_ptr<Workplace> workplace,
              std::size_t budget_bytes)
      : group_(std::move(group)), workplace_(std::move(workplace)), budget_bytes_(budget_bytes) {}

  // Collective: a pool of that size instead of the one before. BucketSlots that were taken stay.
  Status make_pool(std::size_t bytes);
  bool has_room(std::size_t bytes) const;
  // Local, and never waits. Its contents are what was left there; it goes back with its last handle.
  Result<SymmetricMemory> take(std::size_t bytes);

  std::size_t pool_bytes() const { return pool_.bytes(); }
  // The pool, and what lies beside it now.
  std::size_t bytes() const { return pool_.bytes() + beside_->load(std::memory_order_relaxed); }

 private:
  Result<SymmetricMemory> take_beside(std::size_t bytes);

  std::shared_ptr<Group> group_;
  std::shared_ptr<Workplace> workplace_;
  std::size_t budget_bytes_;
  SymmetricPool pool_;
  std::shared_ptr<std::atomic<std::size_t>> beside_ = std::make_shared<std::atomic<std::size_t>>(0);
};

}  // namespace tutti::train
