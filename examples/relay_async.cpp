// The relay once more, with every rank at work on something else while its numbers travel.
//
//   tutti run -n 3 build/bin/examples/relay_async
#include "example.hpp"

using namespace example;

// Counts primes below `limit`: honest work whose result can be checked.
static int count_primes(int limit) {
  int primes = 0;
  for (int n = 2; n < limit; ++n) {
    bool prime = true;
    for (int d = 2; d * d <= n && prime; ++d) prime = n % d != 0;
    primes += prime ? 1 : 0;
  }
  return primes;
}

// Works until the numbers have travelled, and says what came of both.
static void work_meanwhile(int rank, tutti::Work travelling, const char* what) {
  const int primes = count_primes(20000);
  check(travelling.wait());
  say("rank %d counted %d primes while it %s", rank, primes, what);
}

int main() {
  auto group = join(3, "relay_async");
  const int rank = group->rank();
  // Lent to the library from the call until its Work is done: not to be touched in between.
  std::vector<float> values(2, 0.0f);
  const auto buffer = tutti::Buffer::of(values);

  if (rank == 0) {
    values = {100, 200};
    work_meanwhile(rank, group->isend(buffer, /*peer=*/1), "sent [100, 200]");
    return 0;
  }
  work_meanwhile(rank, group->irecv(buffer, /*source=*/rank - 1), "received");
  say("rank %d got %s", rank, text(values).c_str());
  if (rank == 1) {
    for (float& value : values) value *= 2;
    work_meanwhile(rank, group->isend(buffer, /*peer=*/2), "sent [200, 400]");
  }
}
