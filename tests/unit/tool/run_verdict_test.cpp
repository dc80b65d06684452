// What a rank was doing when it ended, in words.
#include <gtest/gtest.h>

#include "tool/run/verdict.hpp"

namespace tutti::tool {
namespace {

constexpr Nanoseconds kEnded{10'000'000'000};

std::string words(Collective collective, std::uint64_t sequence, BoardState state,
                  std::uint64_t size) {
  BoardNote note = BoardNote::of(collective, "dp", sequence, state);
  note.time_ns = kEnded.count() - 1'500'000'000;
  note.dtype = Dtype::bf16;
  note.size = size;
  return describe_operation(note, kEnded);
}

TEST(RunVerdict, names_the_last_operation) {
  EXPECT_EQ(words(Collective::all_reduce, 17, BoardState::running, 4 << 20),
            "it was in all_reduce (4 MiB, bf16), the 17th operation of group 'dp', for 1.5 s");
  EXPECT_EQ(
      words(Collective::barrier, 2, BoardState::done, 0),
      "it was last in barrier, the 2nd operation of group 'dp', which was done 1.5 s earlier");
  EXPECT_EQ(words(Collective::all_gather, 3, BoardState::waiting, 0),
            "it was in all_gather, the 3rd operation of group 'dp', which waited for another "
            "operation to end, for 1.5 s");
  EXPECT_EQ(words(Collective::broadcast, 111, BoardState::failed, 3),
            "it was last in broadcast (3 B, bf16), the 111th operation of group 'dp', which failed "
            "1.5 s earlier");
}

TEST(RunVerdict, names_a_rank_by_its_label_too) {
  Ending ending{2, "a", 4182, 9, kEnded, kEnded};
  EXPECT_EQ(describe(ending),
            "rank 2 (host a, pid 4182) was killed by signal 9 (SIGKILL) after 10.0 s");
  ending.label = "dp 1, tp 0";
  EXPECT_EQ(describe(ending),
            "rank 2 (dp 1, tp 0; host a, pid 4182) was killed by signal 9 (SIGKILL) after 10.0 s");
}

TEST(RunVerdict, has_words_where_there_was_no_operation) {
  EXPECT_EQ(describe_operation(std::nullopt, kEnded), "it had not called tutti");
  BoardNote note = BoardNote::of("creating group", "dp", 0, BoardState::running);
  note.time_ns = kEnded.count();
  EXPECT_EQ(describe_operation(note, kEnded), "it was creating group 'dp', for 0.0 s");
  note = BoardNote::of("", "dp", 0, BoardState::failed);
  note.time_ns = kEnded.count();
  EXPECT_EQ(describe_operation(note, kEnded),
            "it was last in group 'dp', which failed 0.0 s earlier");
}

}  // namespace
}  // namespace tutti::tool
