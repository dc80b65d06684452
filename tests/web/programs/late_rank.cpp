// A job with a rank that comes late: all ranks all_reduce CALLS times, then the last rank waits for
// the file GATE to appear before it joins the others in one more.
//   late_rank CALLS GATE [held]      held: it joins them at once, by a call that comes after a message
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
  if (count != 3 && count != 4) return 2;
  auto group = tutti::Group::from_environment();
  if (!group.ok()) return fail(group.status());
  std::vector<float> values(1024, 1.0F);
  const auto start = [&](const tutti::CallOptions& options = {}) {
    return (*group)->all_reduce_async(tutti::Buffer::of(values), tutti::ReduceOp::max, options);
  };
  const auto once = [&] { return start().wait(); };
  for (int i = 0; i < std::atoi(arguments[1]); ++i)
    if (tutti::Status status = once(); !status.ok()) return fail(status);
  const int self = (*group)->rank();
  const bool late = self == (*group)->size() - 1;
  int message = 0;
  tutti::Work last;
  if (late && count == 4)
    last = start(tutti::CallOptions{}.after((*group)->irecv(tutti::Buffer::of(&message, 1), self)));
  while (late && !std::filesystem::exists(arguments[2]))
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
  if (late && count == 4) {
    const int gate = 1;
    if (tutti::Status status = (*group)->send(tutti::ConstBuffer::of(&gate, 1), self); !status.ok())
      return fail(status);
  } else {
    last = start();
  }
  if (tutti::Status status = last.wait(); !status.ok()) return fail(status);
  std::printf("rank %d is through\n", (*group)->rank());
  return 0;
}
