// Each rank brings five times its rank + 1, and every rank ends up with one list per rank.
//
//   tutti run -n 3 build/bin/examples/all_gather
#include "example.hpp"

using namespace example;

int main() {
  auto group = join();
  const int rank = group->rank();

  const std::vector<float> mine(5, static_cast<float>(rank + 1));
  say("rank %d before all_gather: %s", rank, text(mine).c_str());

  std::vector<std::vector<float>> lists(group->size(), std::vector<float>(mine.size()));
  std::vector<tutti::Buffer> outputs;
  for (auto& list : lists) outputs.push_back(tutti::Buffer::of(list));
  check(group->all_gather(tutti::ConstBuffer::of(mine), outputs));
  for (std::size_t source = 0; source < lists.size(); ++source) {
    say("rank %d after  all_gather: from rank %zu %s", rank, source, text(lists[source]).c_str());
  }
}
