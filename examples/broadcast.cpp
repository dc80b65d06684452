// Rank 0 has five numbers, the others have zeros; after the broadcast everybody has the numbers.
//
//   tutti run -n 3 build/bin/examples/broadcast
#include "example.hpp"

using namespace example;

int main() {
  auto group = join();
  const int rank = group->rank();

  std::vector<float> values(5, 0.0f);
  if (rank == 0) values = {1, 2, 3, 4, 5};
  say("rank %d before broadcast: %s", rank, text(values).c_str());

  check(group->broadcast(tutti::Buffer::of(values), /*root=*/0));
  say("rank %d after  broadcast: %s", rank, text(values).c_str());
}
