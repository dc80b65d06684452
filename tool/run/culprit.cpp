#include "tool/run/culprit.hpp"

#include <signal.h>
#include <sys/wait.h>

namespace tutti::tool {
namespace {

// Gave up because another rank was lost. An exception that nobody caught ends in abort().
bool followed_another(const Ending& ending, const std::optional<BoardNote>& note) {
  const bool gave_up = WIFEXITED(ending.wait_status) || WTERMSIG(ending.wait_status) == SIGABRT;
  if (!gave_up || !note || note->state != BoardState::failed) return false;
  return (note->code == Code::peer_lost || note->code == Code::aborted) &&
         note->culprit != ending.rank;
}

}  // namespace

Suspect find_culprit(const std::vector<Ending>& failures, const Board& board) {
  for (std::size_t index = 0; index < failures.size(); ++index)
    if (!followed_another(failures[index], board.read(failures[index].rank))) return {index, true};
  return {0, false};
}

}  // namespace tutti::tool
