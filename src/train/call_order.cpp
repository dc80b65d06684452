#include "train/call_order.hpp"

#include <fmt/format.h>

namespace tutti::train {

Status CallOrder::begin_micro_batch(bool last) {
  if (pipelined_ && at_ == At::complete) return {};
  if (at_ != At::step_begins && at_ != At::between && !(pipelined_ && at_ == At::forward))
    return refuse(last ? "begin_micro_batch(true)" : "begin_micro_batch(false)");
  at_ = At::forward;
  last_ = last;
  ++micro_batches_;
  return {};
}

Status CallOrder::begin_backward() {
  if (at_ != At::forward) return refuse("begin_backward()");
  at_ = At::backward;
  return {};
}

Status CallOrder::begin_backward(bool last) {
  if (at_ == At::step_begins || at_ == At::backward) return refuse("begin_backward(last)");
  at_ = At::backward;
  last_ = last;
  is_complete_ |= last;
  return {};
}

Status CallOrder::ready(std::string_view parameter) const {
  if (at_ != At::backward) return refuse(fmt::format("ready('{}')", parameter));
  return {};
}

Status CallOrder::end_backward() {
  if (at_ != At::backward) return refuse("end_backward()");
  at_ = last_ || is_complete_ ? At::complete : At::between;
  return {};
}

Status CallOrder::step() const { return at_ == At::complete ? Status() : refuse("step()"); }

Status CallOrder::refuse(std::string_view call) const {
  std::string_view why;
  switch (at_) {
    case At::step_begins: why = "the step has no micro-batch yet; call begin_micro_batch"; break;
    case At::forward:
      why = "a micro-batch is in its forward; call begin_backward, or discard_gradients";
      break;
    case At::backward:
      why = "a backward is under way; call end_backward, or discard_gradients";
      break;
    case At::between:
      why = "the step's last micro-batch is still to come; call begin_micro_batch";
      break;
    case At::complete:
      why = "the step's last micro-batch is complete; call step, or discard_gradients";
      break;
  }
  return {Code::invalid_argument, fmt::format("{} is out of order: {} first", call, why)};
}

}  // namespace tutti::train
