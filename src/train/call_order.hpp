// train/call_order.hpp - which call of a step may follow which.
//
//     ┌────────────── the next micro-batch ───────────────┐
//     ▼                                                   │
//   begin_micro_batch ─▶ begin_backward ─▶ ready … ─▶ end_backward ─▶ step, after the last one
//
// What is not in the drawing may come at any time; discard_gradients leads back to the beginning. Pipelined, a
// micro-batch may be begun and any of those that were begun may go backward whenever no backward is under way.
//
// Pure.
// Failure        invalid_argument names the call that came and what should come before it.
#pragma once

#include <cstdint>
#include <string_view>

#include "tutti/status.hpp"

namespace tutti::train {

class CallOrder {
 public:
  explicit CallOrder(bool pipelined = false) : pipelined_(pipelined) {}

  Status begin_micro_batch(bool last);
  Status begin_backward();
  Status begin_backward(bool last);
  Status ready(std::string_view parameter) const;
  Status end_backward();
  Status step() const;
  // A step is over, or begun again.
  void restart() {
    at_ = At::step_begins;
    micro_batches_ = 0;
    is_complete_ = false;
  }

  // Of the micro-batch that was begun last; pipelined: of the backward.
  bool is_last() const noexcept { return last_; }
  bool in_backward() const noexcept { return at_ == At::backward; }
  // How many were begun in this step.
  int micro_batches() const noexcept { return micro_batches_; }

 private:
  enum class At : std::uint8_t { step_begins, forward, backward, between, complete };
  Status refuse(std::string_view call) const;

  bool pipelined_;
  At at_ = At::step_begins;
  bool last_ = false;
  int micro_batches_ = 0;
  bool is_complete_ = false;  // pipelined: some gradients are
};

}  // namespace tutti::train
