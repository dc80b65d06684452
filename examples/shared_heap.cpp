// Ordinary memory that all ranks of the host have mapped: every rank takes what it likes from its heap, and
// collectives copy nothing.
//
//   tutti run -n 3 build/bin/examples/shared_heap
#include "example.hpp"

using namespace example;

int main() {
  const tutti::SharedHeap heap =
      value_of(tutti::SharedHeap::of_process());  // before the ranks meet
  auto group = join();
  const int rank = group->rank();

  // No rank asks the others, and each has its block somewhere else.
  constexpr std::size_t kCount = 1 << 20;
  void* before = value_of(heap.allocate(100'000 * static_cast<std::size_t>(rank + 1)));
  auto* values = static_cast<float*>(value_of(heap.allocate(kCount * sizeof(float))));
  for (std::size_t i = 0; i < kCount; ++i) values[i] = static_cast<float>(rank + 1);

  check(group->all_reduce(tutti::Buffer::of(values, kCount), tutti::ReduceOp::sum));
  say("rank %d: %zu sums, the last is %g; %zu KiB of the heap are in use", rank, kCount,
      static_cast<double>(values[kCount - 1]), heap.usage().in_use_bytes >> 10);

  heap.free(values);
  heap.free(before);
}
