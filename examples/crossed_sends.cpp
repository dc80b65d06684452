// Two ranks send each other a large message, and only then receive. A large send waits for its
// receive, so that both would wait for ever: a deadline ends it with an error that says so. The
// same operations as one batch do not depend on their order, and finish.
//
//   tutti run -n 2 build/bin/examples/crossed_sends
#include <chrono>

#include "example.hpp"

using namespace example;

int main() {
  auto group = join(2, "crossed_sends");
  const int rank = group->rank();
  const int peer = 1 - rank;
  const std::vector<float> mine(1 << 20, static_cast<float>(rank + 1));
  std::vector<float> theirs(mine.size(), 0.0f);

  // On a group of its own: what ends in an error here cannot disturb the rest of the program.
  {
    auto crossing = value_of(group->duplicate({"crossing"}));
    tutti::CallOptions soon;
    soon.timeout = std::chrono::milliseconds(500);
    const auto status = crossing->send(tutti::ConstBuffer::of(mine), peer, /*tag=*/0, soon);
    say("rank %d, blocking send first: %s", rank, std::string(to_string(status.code())).c_str());
    if (status.code() != tutti::Code::timed_out) return 1;
    std::fprintf(stderr, "rank %d was told: %s\n", rank, status.message().c_str());
    // Both have given up before either lets go of the group.
    check(group->barrier());
  }

  tutti::Buffer sent = tutti::Buffer::of(const_cast<float*>(mine.data()), mine.size());
  const std::vector<tutti::Transfer> batch = {
      {tutti::Transfer::Kind::send, sent, peer, /*tag=*/0},
      {tutti::Transfer::Kind::recv, tutti::Buffer::of(theirs), peer, /*tag=*/0},
  };
  check(group->transfer(batch, {}).wait());
  const bool right = theirs == std::vector<float>(mine.size(), static_cast<float>(peer + 1));
  say("rank %d, the same as a batch: %zu numbers from rank %d, all %s", rank, theirs.size(), peer,
      right ? "right" : "WRONG");
  return right ? 0 : 1;
}
