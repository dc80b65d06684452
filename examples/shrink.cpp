// A rank is gone, and the others go on without it. What they were doing together ends with an error
// that names it, on every survivor; they agree on who is left, and sum again in a smaller group on
// the links that they have. (Under `tutti run` a rank that is killed ends the job, unless the others
// say that they survive losses; so the last rank leaves on its own here.)
//
//   tutti run -n 4 build/bin/examples/shrink
#include <chrono>

#include "example.hpp"

using namespace example;

namespace {

float sum_of_ranks(tutti::Group& group, int rank) {
  float sum = static_cast<float>(rank);
  check(group.all_reduce(tutti::Buffer::of(&sum, 1), tutti::ReduceOp::sum));
  return sum;
}

}  // namespace

int main() {
  auto group = join(4, "shrink");
  const int rank = group->rank();
  const float all = sum_of_ranks(*group, rank);
  say("rank %d of %d: the ranks sum to %g", rank, group->size(), all);
  if (rank == group->size() - 1) return 0;  // gone, without a word to the others

  // The next thing that they do together fails, on every survivor.
  const tutti::Status lost = group->barrier();
  say("rank %d is told: %s, and it is rank %d", rank, std::string(to_string(lost.code())).c_str(),
      lost.peer());

  group = value_of(group->shrink("", std::chrono::seconds(10)));
  const float rest = sum_of_ranks(*group, rank);
  say("rank %d is rank %d of %d now: the old ranks sum to %g", rank, group->rank(), group->size(),
      rest);
}
