#include "core/board.hpp"

#include <gtest/gtest.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <cstring>
#include <thread>
#include <vector>

namespace tutti {
namespace {

TEST(board, a_dead_rank_leaves_its_last_note) {
  auto board = Board::create(4);
  ASSERT_TRUE(board.ok()) << board.status().to_string();
  EXPECT_FALSE(board->read(2));
  const pid_t child = ::fork();
  ASSERT_GE(child, 0);
  if (child == 0) {
    auto mine = Board::attach(::dup(board->descriptor()));
    if (!mine.ok()) ::_exit(1);
    mine->note(2, BoardNote::of(Collective::broadcast, "world", 1, BoardState::done));
    mine->note(2, BoardNote::of(Collective::all_reduce, "world", 1042, BoardState::running));
    ::kill(::getpid(), SIGKILL);
  }
  int status = 0;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  ASSERT_TRUE(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL) << status;
  const auto note = board->read(2);
  ASSERT_TRUE(note);
  EXPECT_EQ(note->sequence, 1042u);
  EXPECT_STREQ(note->operation, "all_reduce");
  EXPECT_STREQ(note->group, "world");
  EXPECT_EQ(note->state, BoardState::running);
  EXPECT_EQ(note->pid, child);
  EXPECT_GT(note->time_ns, 0);
  EXPECT_FALSE(board->read(1));
}

TEST(board, who_has_ended_is_told_beside_the_last_note) {
  auto board = Board::create(2);
  board->note(1, BoardNote::of(Collective::barrier, "world", 3, BoardState::done));
  EXPECT_FALSE(board->ended(1));
  board->end(1, 0);
  board->end(2, 9);
  EXPECT_EQ(board->ended(1), 0);
  EXPECT_EQ(board->read(1)->sequence, 3u);
  EXPECT_FALSE(board->ended(0));
  EXPECT_FALSE(board->ended(2));

  EXPECT_FALSE(board->survives_losses(1));
  board->say_survives_losses(1);
  EXPECT_TRUE(board->survives_losses(1));
  EXPECT_FALSE(board->survives_losses(0));
  EXPECT_FALSE(board->survives_losses(7));
  EXPECT_FALSE(board->takes_back(1));
  board->say_takes_back(1);
  EXPECT_TRUE(board->takes_back(1));
  board->begin_again(1);
  EXPECT_FALSE(board->ended(1));
  EXPECT_EQ(board->read(1)->state, BoardState::nothing);
  EXPECT_TRUE(board->survives_losses(1));  // which was said for good
  EXPECT_FALSE(board->takes_back(1));
  EXPECT_EQ(describe_ending(7 << 8), "exited with code 7");
  EXPECT_EQ(describe_ending(9), "was killed by signal 9 (SIGKILL)");
}

TEST(board, long_names_are_cut_and_wrong_ranks_ignored) {
  auto board = Board::create(1);
  board->note(0,
              BoardNote::of(std::string(200, 'o'), std::string(200, 'g'), 7, BoardState::failed));
  EXPECT_EQ(std::strlen(board->read(0)->operation), 23u);
  EXPECT_EQ(std::strlen(board->read(0)->group), 55u);
  board->note(1, BoardNote());
  board->note(-1, BoardNote());
  EXPECT_FALSE(board->read(1));
  EXPECT_FALSE(board->read(-1));
}

TEST(board, a_rank_has_a_label_until_it_is_started_again) {
  auto board = Board::create(2);
  EXPECT_EQ(board->label(1), "");
  board->say_label(1, "dp 1, tp 0");
  board->say_label(2, "nobody");
  EXPECT_EQ(board->label(1), "dp 1, tp 0");
  EXPECT_EQ(board->label(0), "");
  EXPECT_EQ(board->label(2), "");
  board->say_label(1, std::string(200, 'x'));
  EXPECT_EQ(board->label(1), std::string(87, 'x'));
  board->say_label(1, "short");
  EXPECT_EQ(board->label(1), "short");
  board->begin_again(1);
  EXPECT_EQ(board->label(1), "");
}

TEST(board, what_is_no_board_is_refused) {
  const int file = ::memfd_create("other", MFD_CLOEXEC);
  EXPECT_EQ(Board::attach(::dup(file)).status().code(), Code::corrupt);
  ASSERT_EQ(::ftruncate(file, 4096), 0);
  EXPECT_EQ(Board::attach(file).status().code(), Code::corrupt);
  EXPECT_EQ(Board::attach(-1).status().code(), Code::io);
  EXPECT_EQ(Board::create(0).status().code(), Code::invalid_argument);
}

TEST(board, notes_are_never_read_torn) {
  auto board = Board::create(1);
  std::atomic<int> running{2};
  std::vector<std::thread> writers;
  for (char letter : {'a', 'b'})
    writers.emplace_back([&, letter] {
      for (std::uint64_t i = 1; i <= 20000; ++i) {
        BoardNote note =
            BoardNote::of(std::string(20, letter), std::string(50, letter), i, BoardState::running);
        note.time_ns = static_cast<std::int64_t>(i);
        board->note(0, note);
      }
      --running;
    });
  int seen = 0;
  do {
    const auto note = board->read(0);
    if (!note) continue;
    ++seen;
    ASSERT_EQ(note->sequence, static_cast<std::uint64_t>(note->time_ns));
    ASSERT_EQ(std::string(note->operation), std::string(20, note->group[0]));
    ASSERT_EQ(std::string(note->group), std::string(50, note->operation[0]));
  } while (running > 0 || seen == 0);
  for (auto& writer : writers) writer.join();
}

}  // namespace
}  // namespace tutti
