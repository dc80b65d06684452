// A job with a rank that comes late: all ranks all_reduce CALLS times, then the last rank waits for
// the file GATE to appear before it joins the others in one more.
//   late_rank CALLS GATE
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <thread>
#include <vector>

#include "tutti/tutti.hpp"

namespace {

int fail(const tutti::Status& status) {
  std::fprintf(stderr, "%s\n", status.to_string().c_str());
  return 1;
}

}  // namespace

int main(int count, char** arguments) {
  if (count != 3) return 2;
  auto group = tutti::Group::from_environment();
  if (!group.ok()) return fail(group.status());
  std::vector<float> values(1024, 1.0F);
  const auto once = [&] {
    return (*group)->all_reduce(tutti::Buffer::of(values), tutti::ReduceOp::max);
  };
  for (int i = 0; i < std::atoi(arguments[1]); ++i)
    if (tutti::Status status = once(); !status.ok()) return fail(status);
  const bool late = (*group)->rank() == (*group)->size() - 1;
  while (late && !std::filesystem::exists(arguments[2]))
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
  if (tutti::Status status = once(); !status.ok()) return fail(status);
  std::printf("rank %d is through\n", (*group)->rank());
  return 0;
}
