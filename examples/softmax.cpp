// A softmax over numbers that are spread over all ranks: the largest by all_reduce max, the sum of
// the exponentials by all_reduce sum. Every rank then compares its part with a softmax that it
// computes by itself over all numbers.
//
//   tutti run -n 4 build/bin/examples/softmax
#include <algorithm>
#include <cmath>

#include "example.hpp"

using namespace example;

static const int kPerRank = 3;

// The numbers of one rank; every rank can make everybody's, to check.
static std::vector<double> logits_of(int rank) {
  std::vector<double> logits;
  for (int i = 0; i < kPerRank; ++i) logits.push_back(rank + 1 + i - 0.25 * rank * i);
  return logits;
}

static std::vector<double> local_softmax(std::vector<double> x) {
  const double largest = *std::max_element(x.begin(), x.end());
  double sum = 0;
  for (double& v : x) sum += v = std::exp(v - largest);
  for (double& v : x) v /= sum;
  return x;
}

int main() {
  auto group = join();
  const int rank = group->rank();
  std::vector<double> mine = logits_of(rank);

  // Taking the largest away first keeps exp from overflowing.
  double largest = *std::max_element(mine.begin(), mine.end());
  check(group->all_reduce(tutti::Buffer::of(&largest, 1), tutti::ReduceOp::max));
  double sum = 0;
  for (double& v : mine) sum += v = std::exp(v - largest);
  check(group->all_reduce(tutti::Buffer::of(&sum, 1), tutti::ReduceOp::sum));
  for (double& v : mine) v /= sum;

  std::vector<double> all;
  for (int r = 0; r < group->size(); ++r) {
    const auto logits = logits_of(r);
    all.insert(all.end(), logits.begin(), logits.end());
  }
  const auto expected = local_softmax(all);
  double difference = 0;
  for (int i = 0; i < kPerRank; ++i)
    difference = std::max(difference, std::abs(mine[i] - expected[rank * kPerRank + i]));
  const bool right = difference < 1e-12;
  say("rank %d: softmax %.4f %.4f %.4f, as the local one: %s", rank, mine[0], mine[1], mine[2],
      right ? "yes" : "NO");
  return right ? 0 : 1;
}
