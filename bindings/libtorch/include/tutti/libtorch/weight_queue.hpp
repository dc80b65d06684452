// tutti/libtorch/weight_queue.hpp - weight gradients that are computed later than those of inputs, as zero-bubble
// pipelines want them.
//
// A linear layer with a queue computes its input's gradient in backward and puts the product for its weight into
// the queue; run_next computes it and adds it to the weight's .grad, by the weight's own accumulator: whoever
// waits there for the gradient (DataParallel) hears of it then. One autograd pass in all; the same bits.
//
// Ordering       first in, first out: gradients are added in the order of the backwards.
// Buffers        a product holds its layer's input and output gradient until it has run.
// Thread-safety  one thread at a time.
//
//   loss.backward();                    // input gradients; queue.size() products wait
//   send_gradient_to_the_stage_before();
//   while (queue.size() > 0) check(queue.run_next());
#pragma once

#include <cstddef>
#include <deque>
#include <functional>

#include "tutti/status.hpp"

namespace tutti::libtorch {

class WeightQueue {
 public:
  void push(std::function<void()> product) { products_.push_back(std::move(product)); }
  std::size_t size() const { return products_.size(); }
  // The oldest one. What it throws is its status. Nothing is waiting: ok.
  Status run_next();
  Status run_all();
  // Without running them: the step is given up.
  void clear() { products_.clear(); }

 private:
  std::deque<std::function<void()>> products_;
};

}  // namespace tutti::libtorch
