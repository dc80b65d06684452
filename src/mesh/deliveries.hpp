// mesh/deliveries.hpp - who sends what to whom when a tensor goes from one arrangement to another
// without being folded: each rank gets what it lacks from one that has it.
//
// Of several that have it, one on the same host is taken; then the one that has the least to send; then
// the nearest. Along partial axes values differ: there everybody gets it from its own coordinate.
// Pure: every rank works out the same list.
#pragma once

#include <vector>

#include "mesh/arrangement.hpp"

namespace tutti::mesh {

struct Delivery {
  int from = 0;  // positions
  int to = 0;
  TensorBox box;
};

struct DeliveryList {
  std::vector<Delivery> deliveries;  // by receiver
  AxisSet axes = 0;                  // in which senders and receivers differ
  std::int64_t rank_count = 0;       // elements that the busiest rank sends or receives
  // To or from other hosts: of the busiest rank, and of the busiest host.
  std::int64_t away_count = 0;
  std::int64_t host_count = 0;
};

struct DeliveryRequest {
  const TensorLayout& tensor;  // its axes and shape
  const Arrangement& before;
  const Arrangement& after;       // partial along the same axes
  const std::vector<int>& hosts;  // by position; empty: all share one
};
DeliveryList plan_deliveries(const DeliveryRequest& request);

}  // namespace tutti::mesh
