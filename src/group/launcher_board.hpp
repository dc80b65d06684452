// group/launcher_board.hpp - this process's line on the launcher's board (core/board.hpp), for every
// group that the process creates, from whatever store.
#pragma once

#include <optional>

#include "core/board.hpp"
#include "group/self.hpp"

namespace tutti::group {

struct LauncherBoard {
  Board board;
  int rank = 0;              // of this process in the launcher's job
  bool is_of_grown = false;  // of a group that has grown: its ranks are its own

  // Whether a group's ranks are the job's; only then can the board say which of them have ended.
  bool is_of(int group_rank, int group_size) const {
    return !is_of_grown && group_rank == rank && group_size == board.ranks();
  }
};

// Nothing without a launcher, or where the descriptor did not survive: the board only makes verdicts
// richer and failures quicker, so neither is an error.
std::optional<LauncherBoard> find_launcher_board(const Environment& environment);

}  // namespace tutti::group
