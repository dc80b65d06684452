#include "tutti/libtorch/weight_queue.hpp"

#include "tensor_calls.hpp"

namespace tutti::libtorch {

Status WeightQueue::run_next() {
  if (products_.empty()) return {};
  const auto product = std::move(products_.front());
  products_.pop_front();
  return status_of("a weight's product failed", product);
}

Status WeightQueue::run_all() {
  while (!products_.empty())
    if (Status status = run_next(); !status.ok()) return status;
  return {};
}

}  // namespace tutti::libtorch
