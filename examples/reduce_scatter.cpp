// Each rank has one pair of numbers for every rank; rank j gets the sum of all pairs meant for it.
// The pair for rank j is (rank + 1) and twice that, to the power of j + 1.
//
//   tutti run -n 3 build/bin/examples/reduce_scatter
#include <cmath>

#include "example.hpp"

using namespace example;

int main() {
  auto group = join();
  const int rank = group->rank();

  std::vector<std::vector<float>> pairs;
  for (int j = 0; j < group->size(); ++j) {
    const float base = static_cast<float>(rank + 1);
    pairs.push_back({std::pow(base, j + 1.0f), std::pow(2 * base, j + 1.0f)});
    say("rank %d before reduce_scatter: for rank %d %s", rank, j, text(pairs[j]).c_str());
  }
  std::vector<tutti::ConstBuffer> inputs;
  for (const auto& pair : pairs) inputs.push_back(tutti::ConstBuffer::of(pair));

  std::vector<float> mine(2, 0.0f);
  check(group->reduce_scatter(inputs, tutti::Buffer::of(mine), tutti::ReduceOp::sum));
  say("rank %d after  reduce_scatter: %s", rank, text(mine).c_str());
}
