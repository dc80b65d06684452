// The lower and the upper half of the ranks each sum their own numbers; then everybody learns both
// sums. The two halves work at the same time and know nothing of each other.
//
//   tutti run -n 4 build/bin/examples/sub_groups
#include <algorithm>

#include "example.hpp"

using namespace example;

int main() {
  auto world = join();
  const int rank = world->rank();
  const int lower_size = (world->size() + 1) / 2;
  const bool lower = rank < lower_size;

  // Same color, same group; the key orders the ranks inside.
  auto half = value_of(world->split(lower ? 0 : 1, /*key=*/rank, {lower ? "lower" : "upper"}));
  say("rank %d is rank %d of %d in %s", rank, half->rank(), half->size(), half->name().c_str());

  float sum = static_cast<float>(rank);
  check(half->all_reduce(tutti::Buffer::of(&sum, 1), tutti::ReduceOp::sum));

  // The first rank of each half tells everybody.
  float lower_sum = sum;
  float upper_sum = sum;
  check(world->broadcast(tutti::Buffer::of(&lower_sum, 1), /*root=*/0));
  check(world->broadcast(tutti::Buffer::of(&upper_sum, 1),
                         /*root=*/std::min(lower_size, world->size() - 1)));
  say("rank %d knows that lower sums to %g and upper to %g", rank, lower_sum, upper_sum);
}
