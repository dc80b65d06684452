// Numbers are handed on from rank to rank; the one in the middle doubles them.
//
//   tutti run -n 3 build/bin/examples/relay
#include "example.hpp"

using namespace example;

int main() {
  auto group = join(3, "relay");
  std::vector<float> values(2, 0.0f);
  const auto buffer = tutti::Buffer::of(values);

  switch (group->rank()) {
    case 0:
      values = {100, 200};
      say("rank 0 sends %s to rank 1", text(values).c_str());
      check(group->send(buffer, /*peer=*/1));
      break;
    case 1:
      check(group->recv(buffer, /*source=*/0).status());
      say("rank 1 got %s", text(values).c_str());
      for (float& value : values) value *= 2;
      say("rank 1 sends %s to rank 2", text(values).c_str());
      check(group->send(buffer, /*peer=*/2));
      break;
    case 2:
      check(group->recv(buffer, /*source=*/1).status());
      say("rank 2 got %s", text(values).c_str());
      break;
  }
}
