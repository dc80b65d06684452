// The root has one list per rank and hands each rank its own.
//
//   tutti run -n 3 build/bin/examples/scatter
#include "example.hpp"

using namespace example;

int main() {
  auto group = join();
  const int rank = group->rank();
  const int root = 0;

  std::vector<std::vector<float>> lists;
  std::vector<tutti::ConstBuffer> inputs;
  if (rank == root) {
    for (int r = 0; r < group->size(); ++r) {
      lists.emplace_back(5, static_cast<float>(r + 1));
      say("rank %d hands out: to rank %d %s", rank, r, text(lists.back()).c_str());
    }
    for (const auto& list : lists) inputs.push_back(tutti::ConstBuffer::of(list));
  }

  std::vector<float> mine(5, 0.0f);
  say("rank %d before scatter: %s", rank, text(mine).c_str());
  check(group->scatter(inputs, tutti::Buffer::of(mine), root));
  say("rank %d after  scatter: %s", rank, text(mine).c_str());
}
