// A rank that notes an operation on the launcher's board and dies in the middle of it:
//   note_and_die RANK_THAT_DIES            the others end well
//   note_and_die RANK_THAT_DIES followed   the others have missed it, and ended, before it is dead
#include <signal.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>

#include "core/board.hpp"

int main(int count, char** arguments) {
  const char* descriptor = std::getenv("TUTTI_BOARD_FD");
  const char* rank = std::getenv("TUTTI_RANK");
  if (count < 2 || descriptor == nullptr || rank == nullptr) return 2;
  auto board = tutti::Board::attach(std::atoi(descriptor));
  if (!board.ok()) {
    std::fprintf(stderr, "%s\n", board.status().to_string().c_str());
    return 4;
  }
  tutti::BoardNote note = tutti::BoardNote::of(tutti::Collective::all_reduce, "world", 1042,
                                               tutti::BoardState::running);
  note.dtype = tutti::Dtype::f32;
  note.size = 4 << 20;
  board->note(std::atoi(rank), note);
  const bool dies = std::strcmp(rank, arguments[1]) == 0;
  if (dies && count > 2) ::usleep(200'000);
  if (dies) ::raise(SIGKILL);
  if (count == 2) return 0;
  note.state = tutti::BoardState::failed;
  note.code = tutti::Code::peer_lost;
  note.culprit = std::atoi(arguments[1]);
  board->note(std::atoi(rank), note);
  return 3;
}
