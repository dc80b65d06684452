// mesh/step_maker.hpp - steps of a redistribution from what they do: how many bytes they move, and what
// they cost. Remembers prices: a search asks for the same ones again and again.
#pragma once

#include <map>
#include <tuple>
#include <vector>

#include "mesh/arrangement.hpp"
#include "mesh/deliveries.hpp"
#include "tutti/redistribution.hpp"

namespace tutti::mesh {

using StepKind = RedistributionStep::Kind;

// From one arrangement to another, along some axes.
struct Leg {
  StepKind kind = StepKind::slice;
  AxisSet axes = 0;
  Arrangement after;
};

class StepMaker {
 public:
  // `tensor` and `costs` are lent. `op`: of whatever is partial.
  StepMaker(const TensorLayout& tensor, ReduceOp op, const RedistributionCosts& costs)
      : tensor_(tensor), op_(op), costs_(costs) {}

  // Of anything but a transfer.
  double seconds(const Leg& leg, const Arrangement& before);
  // Of what is transferred.
  double seconds(const DeliveryList& list);
  DeliveryList deliveries(const Arrangement& before, const Arrangement& after) const;
  RedistributionStep step(const Leg& leg, const Arrangement& before);

 private:
  int ranks_along(AxisSet axes) const;
  std::int64_t array_bytes(const Leg& leg, const Arrangement& before) const;
  std::int64_t rank_bytes(const Leg& leg, const Arrangement& before) const;
  double price(const StepTraffic& traffic, AxisSet axes);
  std::int64_t bytes_of(std::int64_t count) const {
    return count * static_cast<std::int64_t>(size_of(tensor_.dtype));
  }

  const TensorLayout& tensor_;
  ReduceOp op_;
  const RedistributionCosts& costs_;
  std::map<std::tuple<StepKind, AxisSet, double, double, double>, double> known_;
};

RedistributionChain chain_of(std::vector<RedistributionStep> steps);

}  // namespace tutti::mesh
