// Each rank brings five times its rank + 1; the root ends up with one list per rank.
//
//   tutti run -n 3 build/bin/examples/gather
#include "example.hpp"

using namespace example;

int main() {
  auto group = join();
  const int rank = group->rank();
  const int root = 0;

  const std::vector<float> mine(5, static_cast<float>(rank + 1));
  say("rank %d before gather: %s", rank, text(mine).c_str());

  // The lists need not lie side by side: one buffer per rank is passed. Only the root has any.
  std::vector<std::vector<float>> lists;
  std::vector<tutti::Buffer> outputs;
  if (rank == root) {
    lists.resize(group->size(), std::vector<float>(mine.size()));
    for (auto& list : lists) outputs.push_back(tutti::Buffer::of(list));
  }
  check(group->gather(tutti::ConstBuffer::of(mine), outputs, root));
  for (std::size_t source = 0; source < lists.size(); ++source) {
    say("rank %d after  gather: from rank %zu %s", rank, source, text(lists[source]).c_str());
  }
}
