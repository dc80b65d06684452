// Each rank brings five times its rank + 1, and every rank gets the sum.
//
//   tutti run -n 3 build/bin/examples/all_reduce
#include "example.hpp"

using namespace example;

int main() {
  auto group = join();
  const int rank = group->rank();

  std::vector<float> values(5, static_cast<float>(rank + 1));
  say("rank %d before all_reduce: %s", rank, text(values).c_str());

  check(group->all_reduce(tutti::Buffer::of(values), tutti::ReduceOp::sum));
  say("rank %d after  all_reduce: %s", rank, text(values).c_str());
}
