// Tree attention: a decoder writes its next token, and the keys and values of the text so far are spread over all
// ranks. Only numbers of the size of one query travel: the largest score by all_reduce max, then the sum of the
// exponentials and of the values weighted by them in one all_reduce sum. The ranks' reductions form a tree, where
// passing blocks of keys round a ring would take as many hops as there are ranks. Every rank then compares
// with the attention over all keys that it computes by itself.
//
//   tutti run -n 4 build/bin/examples/tree_attention
#include <algorithm>
#include <cmath>

#include "example.hpp"

using namespace example;
using Vector = std::vector<double>;

static const int kHeads = 2, kWidth = 4;

// The tokens of one rank: not every rank has equally many. Every rank can make everybody's, to check.
static int tokens_of(int rank) { return 3 + rank % 2; }
static double number(int what, int rank, int token, int head, int i) {
  return std::sin(1 + what * 7.3 + rank * 3.1 + token * 1.7 + head * 0.9 + i * 0.4) * 3;
}
static Vector row(int what, int rank, int token, int head) {
  Vector values;
  for (int i = 0; i < kWidth; ++i) values.push_back(number(what, rank, token, head, i));
  return values;
}
static double score(int rank, int token, int head) {
  const Vector query = row(0, 0, 0, head), key = row(1, rank, token, head);
  double sum = 0;
  for (int i = 0; i < kWidth; ++i) sum += query[i] * key[i];
  return sum / std::sqrt(kWidth);
}

// Of the ranks first … last − 1, head by head: the largest score; the sum of exponentials and the weighted values.
static Vector largest_scores(int first, int last) {
  Vector largest(kHeads, -INFINITY);
  for (int head = 0; head < kHeads; ++head)
    for (int rank = first; rank < last; ++rank)
      for (int token = 0; token < tokens_of(rank); ++token)
        largest[head] = std::max(largest[head], score(rank, token, head));
  return largest;
}
static Vector sums(int first, int last, const Vector& largest) {
  Vector sum(kHeads * (1 + kWidth), 0);
  for (int head = 0; head < kHeads; ++head)
    for (int rank = first; rank < last; ++rank)
      for (int token = 0; token < tokens_of(rank); ++token) {
        const double weight = std::exp(score(rank, token, head) - largest[head]);
        const Vector value = row(2, rank, token, head);
        double* own = &sum[head * (1 + kWidth)];
        own[0] += weight;
        for (int i = 0; i < kWidth; ++i) own[1 + i] += weight * value[i];
      }
  return sum;
}
static Vector output_of(const Vector& sum) {
  Vector output;
  for (int head = 0; head < kHeads; ++head)
    for (int i = 0; i < kWidth; ++i)
      output.push_back(sum[head * (1 + kWidth) + 1 + i] / sum[head * (1 + kWidth)]);
  return output;
}

int main() {
  auto group = join();
  const int rank = group->rank(), ranks = group->size();

  Vector largest = largest_scores(rank, rank + 1);
  check(group->all_reduce(tutti::Buffer::of(largest), tutti::ReduceOp::max));
  Vector sum = sums(rank, rank + 1, largest);
  check(group->all_reduce(tutti::Buffer::of(sum), tutti::ReduceOp::sum));
  const Vector output = output_of(sum);

  const Vector plain = output_of(sums(0, ranks, largest_scores(0, ranks)));
  double difference = 0;
  for (std::size_t i = 0; i < output.size(); ++i)
    difference = std::max(difference, std::abs(output[i] - plain[i]));
  const bool right = difference < 1e-12;
  say("rank %d: %d of the tokens, %zu numbers on their way, output %.4f %.4f %.4f %.4f …, as over all keys: %s",
      rank, tokens_of(rank), largest.size() + sum.size(), output[0], output[1], output[2],
      output[3], right ? "yes" : "NO");
  return right ? 0 : 1;
}
