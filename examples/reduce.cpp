// Each rank brings five times its rank + 1; the sum arrives on the root and nowhere else.
//
//   tutti run -n 3 build/bin/examples/reduce
#include "example.hpp"

using namespace example;

int main() {
  auto group = join();
  const int rank = group->rank();

  std::vector<float> values(5, static_cast<float>(rank + 1));
  say("rank %d before reduce: %s", rank, text(values).c_str());

  // In place: the root's own values make room for the sum. Away from the root the output is not
  // looked at, so that the same line does for all ranks.
  const auto buffer = tutti::Buffer::of(values);
  check(group->reduce(buffer, buffer, tutti::ReduceOp::sum, /*root=*/0));
  say("rank %d after  reduce: %s", rank, text(values).c_str());
}
