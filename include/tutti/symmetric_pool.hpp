// tutti/symmetric_pool.hpp - symmetric memory in pieces, taken and given back without the other ranks.
//
// Group::allocate brings all ranks together for each allocation. A pool does so once; from then on every
// rank takes pieces as it likes, of other sizes and in another order than its peers: a collective finds
// each rank's piece wherever it lies, and copies nothing as in any symmetric memory.
//
// Pieces         begin on a multiple of kAlignmentBytes and are contiguous. What is in them is what was
//                left there; in a new pool that is zero.
// Ownership      a piece goes back when the last copy of its handle is gone, the memory itself when the
//                pool and all its pieces are. Each rank keeps its pool for as long as another one uses
//                pieces of its own in calls with it.
// On a GPU       a piece that is given back may be taken again at once: let go of it when the streams
//                that work on it have come past that, or take the next one for the same stream.
// Thread-safety  any thread, any method, beside each other; create is collective.
// Failure        when the group has failed or is gone, nothing is taken any more: ranks that have not
//                noticed may still write into pieces that were given back. The same holds for a piece that
//                was in a call of another group, made from this one, that failed: keep it.
//
//   auto pool = tutti::SymmetricPool::create(group, 64 << 20);
//   if (!pool.ok()) return pool.status();
//   auto piece = pool->take(4 * count);                     // no other rank need do the same
//   if (!piece.ok()) return piece.status();                 // out_of_memory: wait for one, or go without
//   group->all_reduce(tutti::Buffer::of(static_cast<float*>(piece->data), count), tutti::ReduceOp::sum);
#pragma once

#include <cstddef>
#include <memory>

#include "tutti/group.hpp"

namespace tutti {
inline namespace [[gnu::visibility("default")]] v1 {

// A handle that may be copied; one that was not created has no room.
class SymmetricPool {
 public:
  // Two cache lines that are fetched together, and what GPUs want of an address.
  static constexpr std::size_t kAlignmentBytes = 256;

  SymmetricPool() = default;

  // Collective, like Group::allocate; all ranks ask for the same size.
  static Result<SymmetricPool> create(const std::shared_ptr<Group>& group, std::size_t bytes,
                                      Device device = Device::cpu);

  // Code::out_of_memory if no free stretch is large enough; it says how much is free. Local, and without
  // a system call. Zero bytes are no error.
  Result<SymmetricMemory> take(std::size_t bytes) const;

  // For reports. Pieces count with what their alignment costs.
  std::size_t bytes() const;
  std::size_t bytes_free() const;
  std::size_t largest_free() const;  // the largest piece that can be taken now
  std::size_t peak_bytes() const;    // the most that was taken at one time

 private:
  class State;
  explicit SymmetricPool(std::shared_ptr<State> state) : state_(std::move(state)) {}

  std::shared_ptr<State> state_;
};

}  // namespace v1
}  // namespace tutti
