#include "train/gradient_counts.hpp"

#include <algorithm>

namespace tutti::train {

void GradientCounts::begin_step() { std::fill(came_.begin(), came_.end(), 0); }

// The larger number, not the latest: where they take turns, the smaller one would let a bucket go
// too early every other time.
void GradientCounts::learn() {
  for (std::size_t i = 0; i < came_.size(); ++i) learned_[i] = std::max(learned_[i], came_[i]);
}

}  // namespace tutti::train
