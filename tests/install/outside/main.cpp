#include <cstdio>
#include <vector>

#include "tutti/tutti.hpp"

int main() {
  auto group = tutti::Group::from_environment();
  if (!group.ok()) return std::puts(group.status().to_string().c_str()), 1;
  std::vector<float> values{1, 2, 3};
  auto status = (*group)->all_reduce(tutti::Buffer::of(values), tutti::ReduceOp::sum);
  if (!status.ok()) return std::puts(status.to_string().c_str()), 1;
  std::printf("%d rank: %g %g %g\n", (*group)->size(), values[0], values[1], values[2]);
}
