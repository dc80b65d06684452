// train/gradient_counts.hpp - how often each parameter's gradient comes in the backward that completes it.
//
// Mostly once. More often where several tensors share its memory, or where forward is recomputed in
// segments whose backwards each bring a gradient of it. Its bucket may go only when the last one is
// in, and nothing tells it from the others. So the number is learned, from the backward of
// a step's last micro-batch, which is the one that buckets go in.
//
//   not known (0)   the bucket waits until backward ends. Where gradients are not kept whole, a number is
//                   guessed instead: there may be no memory for all of them
//   known           the parameter is complete when its gradient has come that often
//   came less often the bucket waits until backward ends
//   came more often the larger number is learned; too late for a bucket that has gone, which is the
//                   caller's to notice
//
// Pure.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace tutti::train {

class GradientCounts {
 public:
  explicit GradientCounts(std::size_t parameters) : came_(parameters, 0), learned_(parameters, 0) {}
  // `guess`: how often gradients are thought to come before anything was learned.
  explicit GradientCounts(std::vector<std::uint32_t> guess)
      : came_(guess.size(), 0), learned_(std::move(guess)) {}

  void begin_step();
  // Another gradient of it is in. True when that was the last one, as far as is known.
  bool add(std::size_t parameter) { return ++came_[parameter] == learned_[parameter]; }
  // After the backward of a last micro-batch.
  void learn();

  std::uint32_t came(std::size_t parameter) const { return came_[parameter]; }
  std::uint32_t learned(std::size_t parameter) const { return learned_[parameter]; }

 private:
  std::vector<std::uint32_t> came_;     // in this backward
  std::vector<std::uint32_t> learned_;  // 0: never came
};

}  // namespace tutti::train
