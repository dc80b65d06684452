// Scales a vector that is spread over all ranks to length 1: squares are summed by all_reduce, and
// every rank divides its part by the root of the sum.
//
//   tutti run -n 4 build/bin/examples/l2_norm
#include <cmath>

#include "example.hpp"

using namespace example;

static std::vector<double> part_of(int rank) { return {rank + 1.0, rank + 2.0, rank + 3.0}; }

static double sum_of_squares(const std::vector<double>& x) {
  double sum = 0;
  for (double v : x) sum += v * v;
  return sum;
}

int main() {
  auto group = join();
  const int rank = group->rank();
  std::vector<double> mine = part_of(rank);

  double squares = sum_of_squares(mine);
  check(group->all_reduce(tutti::Buffer::of(&squares, 1), tutti::ReduceOp::sum));
  for (double& v : mine) v /= std::sqrt(squares);

  double expected = 0;
  for (int r = 0; r < group->size(); ++r) expected += sum_of_squares(part_of(r));

  // Small whole numbers: the sum of squares is exact in whatever order it was made.
  double length = sum_of_squares(mine);
  check(group->all_reduce(tutti::Buffer::of(&length, 1), tutti::ReduceOp::sum));
  const bool right = squares == expected && std::abs(length - 1) < 1e-12;
  say("rank %d: squares %g, part %.4f %.4f %.4f, length is now 1: %s", rank, squares, mine[0],
      mine[1], mine[2], right ? "yes" : "NO");
  return right ? 0 : 1;
}
