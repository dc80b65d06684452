// A ring all_reduce written by hand on send and recv, compared with the library's.
//
// The vector is cut into one chunk per rank. In the first half of the way every chunk travels once
// around the ring and is added to at each stop; rank r then holds the finished chunk r + 1. In the
// second half the finished chunks travel around once more and are copied.
//
//   tutti run -n 5 build/bin/examples/hand_ring
#include "example.hpp"

using namespace example;

static const int kChunk = 3;  // elements

// One stop: hands chunk `out` on to the next rank while chunk `in` comes from the previous one.
static std::vector<float> pass(tutti::Group& group, std::vector<float>& values, int out) {
  const int rank = group.rank(), ranks = group.size();
  std::vector<float> incoming(kChunk);
  tutti::Work sent = group.isend(tutti::ConstBuffer::of(&values[out * kChunk], kChunk),
                                 /*peer=*/(rank + 1) % ranks);
  check(group.recv(tutti::Buffer::of(incoming), /*source=*/(rank + ranks - 1) % ranks).status());
  check(sent.wait());
  return incoming;
}

static void ring_all_reduce(tutti::Group& group, std::vector<float>& values) {
  const int rank = group.rank(), ranks = group.size();
  const auto chunk = [&](int offset) { return ((rank + offset) % ranks + ranks) % ranks; };

  for (int step = 0; step < ranks - 1; ++step) {  // reduce_scatter
    const auto incoming = pass(group, values, chunk(-step));
    for (int i = 0; i < kChunk; ++i) values[chunk(-step - 1) * kChunk + i] += incoming[i];
  }
  for (int step = 0; step < ranks - 1; ++step) {  // all_gather
    const auto incoming = pass(group, values, chunk(1 - step));
    for (int i = 0; i < kChunk; ++i) values[chunk(-step) * kChunk + i] = incoming[i];
  }
}

int main() {
  auto group = join();
  const int rank = group->rank();

  std::vector<float> by_hand;
  for (int i = 0; i < kChunk * group->size(); ++i)
    by_hand.push_back(static_cast<float>(100 * (rank + 1) + i));
  std::vector<float> by_library = by_hand;

  ring_all_reduce(*group, by_hand);
  check(group->all_reduce(tutti::Buffer::of(by_library), tutti::ReduceOp::sum));

  const bool same = by_hand == by_library;
  say("rank %d by hand: %s", rank, text(by_hand).c_str());
  say("rank %d: %s the library's", rank, same ? "the same as" : "DIFFERENT from");
  return same ? 0 : 1;
}
