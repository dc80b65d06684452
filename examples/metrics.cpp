// Every rank evaluates its own part of the samples, and no two parts are of the same size. The
// totals come from one all_reduce; rank 0 also gathers one line per rank and, as lists of different
// lengths, the samples that were answered wrongly.
//
//   tutti run -n 4 build/bin/examples/metrics
#include <numeric>

#include "example.hpp"

using namespace example;

struct Evaluation {
  double samples = 0;
  double correct = 0;
  double loss = 0;  // summed, so that parts of different sizes weigh right
};

// Samples are numbered over all ranks; this rank has 10 (rank + 1) of them, every seventh wrong.
static Evaluation evaluate(int rank, std::vector<std::int64_t>* wrong) {
  Evaluation result;
  const std::int64_t first = 5 * rank * (rank + 1);
  const std::int64_t end = 5 * (rank + 1) * (rank + 2);
  for (std::int64_t sample = first; sample < end; ++sample) {
    const bool right = sample % 7 != 6;
    result.samples += 1;
    result.correct += right ? 1 : 0;
    result.loss += right ? 0.25 : 2.0;
    if (!right) wrong->push_back(sample);
  }
  return result;
}

static std::vector<double> as_row(const Evaluation& e) { return {e.samples, e.correct, e.loss}; }

static void print_row(const std::string& name, const double* row) {
  say("%-6s %4.0f samples  accuracy %.4f  loss %.4f", name.c_str(), row[0], row[1] / row[0],
      row[2] / row[0]);
}

int main() {
  auto group = join();
  const int rank = group->rank(), ranks = group->size(), root = 0;
  std::vector<std::int64_t> wrong;
  const std::vector<double> mine = as_row(evaluate(rank, &wrong));

  std::vector<double> totals = mine;
  check(group->all_reduce(tutti::Buffer::of(totals), tutti::ReduceOp::sum));

  std::vector<double> rows(rank == root ? 3 * ranks : 0);
  check(group->gather(tutti::ConstBuffer::of(mine), tutti::Buffer::of(rows), root));

  // Lists of different lengths: first the lengths, then the lists.
  const std::size_t length = wrong.size();
  std::vector<std::size_t> lengths(ranks);
  check(group->all_gather(tutti::ConstBuffer::of(&length, 1), tutti::Buffer::of(lengths)));
  std::vector<std::int64_t> everyones(std::accumulate(lengths.begin(), lengths.end(), 0ul));
  check(
      group->gather_v(tutti::ConstBuffer::of(wrong), tutti::Buffer::of(everyones), lengths, root));

  if (rank != root) return 0;
  for (int r = 0; r < ranks; ++r) print_row("rank " + std::to_string(r), &rows[3 * r]);
  print_row("all", totals.data());
  say("wrong: %s", text(everyones).c_str());
}
