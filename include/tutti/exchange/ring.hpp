// tutti/exchange/ring.hpp - every rank's block visits every rank, and is computed on while the next one comes.
//
// Blocks go from rank r to rank r + 1. A visit computes on the block that is there; its successor is
// on its way meanwhile, into the other of two slots. In pass_back a gradient follows each block, one
// visit behind it: it is received beside a visit, this rank's part is added, and it goes on; the last hop
// brings it to the block's owner, and only that one is not hidden.
//
//   visit          0        1        2        3
//   compute      [own   ][ r−1  ][ r−2  ][ r−3  ]
//   blocks       [r−1 →][r−2 →][r−3 →]
//   gradients            [ →   ][ →   ][ →   ][ → owner]
//
// With a `window` the ring is two-dimensional: an inner one within each window of that many neighbouring
// ranks (those of a host), and an outer one between windows, of which each hop has a whole round of the inner
// ring to hide behind. So a slow wire between hosts carries a block once for every window, not for every rank.
//
//   window 2, 4 ranks     visits of rank 0:   0, 1 of its own window,   2, 3 of the other
//
// Ordering       all ranks call it alike, with the same counts. The group's other messages must not use tags
//                from kFirstRingTag on meanwhile.
// Buffers        are lent from the call to its return. Slots are symmetric memory; they grow when they must,
//                which is collective, and are used again.
// Callbacks      run in the calling thread. One that fails ends the exchange with its status, and the
//                group with it.
// Failure        the transfer's, annotated with whose block was awaited. Every wait has the call's deadline.
// Thread-safety  one thread at a time.
//
//   auto ring = RingExchange::create(group);
//   auto times = (*ring)->pass({rows}, {{keys, width, Dtype::f32}, {values, width, Dtype::f32}},
//                              [&](const RingVisit& visit) { return attend(visit.source, visit.block); });
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>

#include "tutti/exchange/times.hpp"
#include "tutti/group.hpp"

namespace tutti::exchange {
inline namespace [[gnu::visibility("default")]] v1 {

inline constexpr std::uint32_t kFirstRingTag = 0x72000000;

struct RingOptions {
  int window = 0;  // ranks of an inner ring; 0: one ring of all. Must divide the group.
  Device device = Device::cpu;
  // into += from, for memory that the library's own sum does not reach, such as a GPU's; null: that sum.
  std::function<void(const Buffer& into, const ConstBuffer& from)> add{};
};

// One array of a block: this rank's has counts[rank] rows of `row` elements.
struct RingArray {
  void* data = nullptr;
  std::size_t row = 1;
  Dtype dtype = Dtype::f32;
};

struct RingVisit {
  int number = 0;                   // from 0; the first one is of the own block
  int source = 0;                   // whose block it is
  std::span<const Buffer> block{};  // its arrays; not to be written
  std::span<const Buffer>
      gradient{};  // pass_back: to be filled with this rank's part; its order is that of `gradients`
};
using VisitCallback = std::function<Status(const RingVisit&)>;

class RingExchange {
 public:
  static Result<std::unique_ptr<RingExchange>> create(std::shared_ptr<Group> group,
                                                      RingOptions options = {});
  virtual ~RingExchange() = default;

  // Calls `compute` once for each rank's block. counts[r]: rows of rank r's block.
  virtual Result<ExchangeTimes> pass(std::span<const std::size_t> counts,
                                     std::span<const RingArray> block, const VisitCallback& compute,
                                     const CallOptions& options = {}) = 0;

  // The same, and sums up what the visits to this rank's block put into their gradients; the sum lands in
  // `gradients`. It is folded in the order in which the block was visited: the same bits in every run.
  virtual Result<ExchangeTimes> pass_back(std::span<const std::size_t> counts,
                                          std::span<const RingArray> block,
                                          std::span<const RingArray> gradients,
                                          const VisitCallback& compute,
                                          const CallOptions& options = {}) = 0;
};

}  // namespace v1
}  // namespace tutti::exchange
