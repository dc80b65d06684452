#include "group/launcher_board.hpp"

#include <fcntl.h>

#include "core/words.hpp"

namespace tutti::group {

std::optional<LauncherBoard> find_launcher_board(const Environment& environment) {
  const auto descriptor = parse_integer(environment("TUTTI_BOARD_FD").value_or(""));
  const auto rank = parse_integer(environment("TUTTI_RANK").value_or(""));
  if (!descriptor.ok() || !rank.ok()) return std::nullopt;
  // A copy of it: the number may be a stranger's by now, and another group may want it too.
  const int copy = ::fcntl(static_cast<int>(*descriptor), F_DUPFD_CLOEXEC, 0);
  if (copy < 0) return std::nullopt;
  auto board = Board::attach(copy);
  if (!board.ok() || *rank < 0 || *rank >= board->ranks()) return std::nullopt;
  return LauncherBoard{*std::move(board), static_cast<int>(*rank)};
}

}  // namespace tutti::group
