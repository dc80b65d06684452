// core/board.hpp - the launcher's status board: what each rank did last, readable after its death.
//
// Anonymous shared memory, one line of 256 bytes per rank (docs/formats/board.md). The launcher
// creates it and hands the descriptor down; a rank attaches and notes its operations; the launcher
// reads a dead rank's line for its verdict, and notes there that it is dead, for those who would
// wait for it. A rank that can do without the others, or takes lost ones back, says so there too.
//
// Thread-safety  any thread of any process. Of two notes for one rank that meet, one is dropped: a
//                rank never waits for its board.
//
//   auto board = Board::attach(descriptor);
//   board->note(rank, BoardNote::of(Collective::all_reduce, "world", 1042, BoardState::running));
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "core/sockets.hpp"
#include "tutti/status.hpp"
#include "tutti/types.hpp"

namespace tutti {

// waiting: it has called the operation, which comes after another one that is not done.
enum class BoardState : std::uint8_t { nothing, running, done, failed, waiting };
std::string_view to_string(BoardState state) noexcept;

struct BoardNote {
  std::uint64_t sequence = 0;
  std::int64_t time_ns = 0;  // of steady_clock(), which all processes of a host share
  std::int32_t pid = 0;      // filled in by note()
  BoardState state = BoardState::nothing;
  Dtype dtype = Dtype::u8;  // of the operation's elements
  Code code = Code::ok;     // of the failure, where it failed
  std::uint8_t spare = 0;
  std::uint64_t size = 0;   // bytes of its own argument to the operation
  std::uint64_t calls = 0;  // collectives of all groups that the rank has started so far
  std::uint64_t bytes = 0;  // of its own arguments to them
  char operation[24] = {};  // "all_reduce", "send", "creating group"; zero-filled, cut off
  char group[56] = {};
  // The rank of the job that the failure names, where it failed; -1: none, or it is not known.
  std::int32_t culprit = -1;
  std::uint8_t unused[4] = {};

  static BoardNote of(std::string_view operation, std::string_view group, std::uint64_t sequence,
                      BoardState state) noexcept;
  static BoardNote of(Collective collective, std::string_view group, std::uint64_t sequence,
                      BoardState state) noexcept {
    return of(tutti::to_string(collective), group, sequence, state);
  }
};
static_assert(sizeof(BoardNote) == 136);

// "exited with code 3", "was killed by signal 9 (SIGKILL)", of what waitpid said.
std::string describe_ending(int wait_status);

class Board {
 public:
  // Makes one for ranks 0 … ranks-1. Its descriptor is close-on-exec: the launcher clears that in
  // the child it is meant for.
  static Result<Board> create(int ranks);
  // Maps a board that somebody else made; takes `descriptor` over and closes it.
  static Result<Board> attach(int descriptor);

  Board(Board&& other) noexcept;
  Board& operator=(Board&& other) noexcept;
  ~Board();

  int descriptor() const noexcept { return descriptor_.get(); }
  int ranks() const noexcept { return ranks_; }

  // Replaces the rank's line. Never blocks; out-of-range ranks are ignored.
  void note(int rank, BoardNote note) noexcept;
  // The rank's line; nothing if it never wrote one, or died in the middle of writing it.
  std::optional<BoardNote> read(int rank) const noexcept;

  // The launcher's word: the rank has ended, with what waitpid said. Its line stays readable.
  void end(int rank, int wait_status) noexcept;
  // What waitpid said of a rank that has ended.
  std::optional<int> ended(int rank) const noexcept;
  // The launcher's word: the rank was started again, and is in no group yet.
  void begin_again(int rank) noexcept;

  // The rank's own words: it goes on where another rank is lost, for good; it is in a group that takes
  // back one that was.
  void say_survives_losses(int rank) noexcept;
  bool survives_losses(int rank) const noexcept;
  void say_takes_back(int rank) noexcept;
  bool takes_back(int rank) const noexcept;
  // What the program calls the rank (Group::label_ranks), cut off at 87 bytes; empty: nothing.
  void say_label(int rank, std::string_view label) noexcept;
  std::string label(int rank) const;

 private:
  struct Line;
  Board(Descriptor descriptor, Line* lines, int ranks);
  static Result<Board> map(Descriptor descriptor, std::size_t bytes);

  Descriptor descriptor_;
  Line* lines_ = nullptr;  // line 0 is the head, line 1 + r belongs to rank r
  int ranks_ = 0;
  std::int32_t pid_ = 0;  // asked once: a note makes no system call
};

}  // namespace tutti
