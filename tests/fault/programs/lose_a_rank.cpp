// Ranks that reduce until one of them is killed; the others hear of it from the library alone:
//   lose_a_rank RANK_THAT_IS_KILLED CODE              they end with CODE
//   lose_a_rank RANK_THAT_IS_KILLED CODE survive      having said before that they can do without it
//   lose_a_rank RANK_THAT_IS_KILLED CODE survive R    all but rank R have said so
#include <signal.h>

#include <cstdio>
#include <cstdlib>
#include <string>
#include <vector>

#include "tutti/tutti.hpp"

int main(int count, char** words) {
  if (count < 3) return 2;
  const char* own = std::getenv("TUTTI_RANK");
  tutti::GroupOptions options;
  options.survives_losses = count > 3 && (count < 5 || std::string(own) != words[4]);
  auto group = tutti::Group::from_environment(options);
  if (!group.ok()) return std::puts(group.status().to_string().c_str()), 9;
  const bool dies = std::string(own) == words[1];
  std::vector<float> values(1000, 1.0F);
  for (int round = 0;; ++round) {
    if (dies && round == 10) ::raise(SIGKILL);
    const tutti::Status status =
        (*group)->all_reduce(tutti::Buffer::of(values), tutti::ReduceOp::avg);
    if (status.ok()) continue;
    std::printf("rank %s lost rank %d\n", own, status.peer());
    return std::atoi(words[2]);
  }
}
