// Ranks that lose one of them, and take it in again if the launcher starts it:
//   regain_a_rank RANK_THAT_IS_KILLED TIMES    rank -1: all of them, unless the job was started again
#include <signal.h>

#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <thread>

#include "tutti/tutti.hpp"

namespace {

using namespace std::chrono_literals;
using MaybeGroup = tutti::Result<std::shared_ptr<tutti::Group>>;
using SharedStore = std::shared_ptr<tutti::Store>;

int number_in(const char* name) {
  const char* value = std::getenv(name);
  return value != nullptr ? std::atoi(value) : 0;
}

tutti::Status reduce(tutti::Group& group, bool dies) {
  float value = 1;
  for (int round = 0; round < 10; ++round) {
    if (dies && round == 5) ::raise(SIGKILL);
    const auto status = group.all_reduce(tutti::Buffer::of(&value, 1), tutti::ReduceOp::avg);
    if (!status.ok()) return status;
  }
  return {};
}

// Waits for the lost one for two seconds; then they are fewer.
MaybeGroup go_on(tutti::Group& group, const SharedStore& store,
                 const tutti::GroupOptions& options) {
  auto smaller = group.shrink();
  if (!smaller.ok()) return smaller;
  const auto until = std::chrono::steady_clock::now() + 2s;
  if ((*smaller)->rank() == 0)
    while (*tutti::Group::waiting(store) == 0 && std::chrono::steady_clock::now() < until)
      std::this_thread::sleep_for(1ms);
  auto larger = (*smaller)->grow(store, number_in("TUTTI_SIZE"), options);
  return larger.ok() && *larger == nullptr ? smaller : larger;
}

}  // namespace

int main(int count, char** words) {
  if (count < 3) return 2;
  const int rank = number_in("TUTTI_RANK");
  const int returned = number_in("TUTTI_RETURNED");
  const int victim = std::atoi(words[1]);
  const bool all_die = victim == -1 && number_in("TUTTI_RESTART") == 0;
  const bool dies = (rank == victim || all_die) && returned < std::atoi(words[2]);
  const auto store = tutti::launcher_store(10s);
  if (!store.ok()) return std::puts(store.status().to_string().c_str()), 9;
  tutti::GroupOptions options;
  options.survives_losses = options.takes_back = true;
  auto group =
      returned > 0 ? tutti::Group::join(*store, options) : tutti::Group::from_environment(options);
  while (group.ok() && !reduce(**group, dies).ok()) group = go_on(**group, *store, options);
  if (!group.ok()) return std::puts(group.status().to_string().c_str()), 9;
  std::printf("rank %d is %d of %d\n", rank, (*group)->rank(), (*group)->size());
  return 0;
}
