// exchange/ring_round.hpp - one exchange of a ring, from its first visit to its last hop.
//
// A *hop* is a send to the next rank and a receive from the one before, started together. Four kinds of them
// are under way beside the visits:
//
//   inner block      started before a visit, waited for after it
//   outer block      started before a round of the inner ring, waited for after it
//   inner gradient   started after a visit, waited for after the next
//   outer gradient   started when the inner ring has brought a round's sum to where its block came in, which is
//                    noticed one visit into the next round; waited for one round later
//
// Two slots for each block suffice: what the older one held has been computed on and sent when the hop into
// it starts.
#pragma once

#include <array>
#include <optional>
#include <vector>

#include "exchange/ring_shape.hpp"
#include "exchange/slots.hpp"
#include "tutti/exchange/meter.hpp"

namespace tutti::exchange {

// What all of an exchange's steps need, given once.
struct RingCall {
  Group& group;
  RingShape shape;
  const RingOptions& options;
  std::span<const std::size_t> counts;
  std::span<const RingArray> block;
  std::span<const RingArray> gradients;  // empty: there are none
  const VisitCallback& compute;
  const CallOptions& call;
};

class RingRound {
 public:
  explicit RingRound(const RingCall& call);
  // What `run` needs in `slots`.
  static std::size_t slot_bytes(const RingCall& call);
  Status run(std::byte* slots);
  // Before any return: what is under way still uses the buffers.
  void settle() { (void)meter_.wait_for_all().ok(); }
  ExchangeTimes times() const { return meter_.times(); }

 private:
  enum class HopKind : std::uint8_t { inner_block, outer_block, inner_gradient, outer_gradient };
  // A place for any rank's block, or its gradient.
  struct Slot {
    std::span<const RingArray> arrays;
    std::byte* memory = nullptr;
    bool own = false;  // not a slot: the caller's arrays
  };
  struct Hop {
    ExchangeMeter::Trip trip = 0;
    int source = 0;  // whose block or gradient comes
    int peer = 0;
  };

  void lay_out(std::byte* slots);
  Status visit_round(int round);
  Status visit(int round, int turn, const Slot& block);
  Status pass_gradient(int round, int turn);
  Status end_round(int round);
  Status end_gradients();

  std::optional<Hop> start(HopKind kind, const Slot& out, int out_source, const Slot& in,
                           int in_source);
  Status wait(const std::optional<Hop>& hop, const char* what);
  void add(const Slot& into, const Slot& from, int source);
  std::vector<Buffer> buffers(const Slot& slot, int source) const;

  RingCall call_;
  RingShape shape_;
  ExchangeMeter meter_;
  Slot own_, sum_;                        // the caller's block and gradients
  std::array<Slot, 2> inner_, outer_;     // blocks
  std::array<Slot, 2> part_, round_sum_;  // gradients: of a visit, of a round
  Slot incoming_, outer_incoming_;        // gradients of others so far
  Slot held_;                             // the block that this round's inner ring began with
  std::optional<Hop> inner_gradient_, outer_gradient_;
};

}  // namespace tutti::exchange
