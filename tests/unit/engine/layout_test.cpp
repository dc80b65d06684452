#include "engine/layout.hpp"

#include <gtest/gtest.h>

#include "engine/fingerprint.hpp"
#include "engine/numbers.hpp"
#include "schedule/catalog.hpp"

namespace tutti::engine {
namespace {

TEST(Cut, parts_are_whole_elements_and_cover_the_message_once) {
  for (const std::size_t element : {1u, 2u, 4u, 8u})
    for (const std::size_t count : {0u, 1u, 2u, 63u, 64u, 1000u, 100003u})
      for (const std::uint32_t parts : {1u, 2u, 3u, 7u, 16u, 64u}) {
        const std::size_t bytes = count * element;
        EXPECT_EQ(cut_at(bytes, element, parts, 0), 0u);
        EXPECT_EQ(cut_at(bytes, element, parts, parts), bytes);
        for (std::uint32_t part = 0; part < parts; ++part) {
          const std::size_t begin = cut_at(bytes, element, parts, part);
          EXPECT_LE(begin, cut_at(bytes, element, parts, part + 1));
          EXPECT_EQ(begin % element, 0u);
        }
      }
}

TEST(Cut, large_parts_begin_on_cache_lines) {
  for (std::uint32_t part = 1; part < 4; ++part) EXPECT_EQ(cut_at(1 << 20, 4, 4, part) % 64, 0u);
}

TEST(ChunkLayout, a_message_of_several_buffers_is_addressed_as_one) {
  std::vector<float> first(5, 1);
  std::vector<float> second(3, 2);
  Launch launch;
  launch.collective = Collective::all_reduce;
  launch.dtype = Dtype::f32;
  launch.output = {{reinterpret_cast<std::byte*>(first.data()), 20},
                   {reinterpret_cast<std::byte*>(second.data()), 12}};
  launch.input = launch.output;
  schedule::Program program;
  program.collective = Collective::all_reduce;
  program.size = 2;
  program.cut = 2;
  ChunkLayout layout;
  layout.reset(program, launch);
  Scattered pieces;
  layout.append(schedule::Space::output, 1, pieces);  // elements 4 … 7
  EXPECT_EQ(pieces.bytes(), 16u);
  EXPECT_FALSE(pieces.contiguous());
  EXPECT_EQ(pieces.at(0).data, reinterpret_cast<std::byte*>(&first[4]));
  EXPECT_EQ(pieces.at(0).bytes, 4u);
  EXPECT_EQ(pieces.at(4).data, reinterpret_cast<std::byte*>(&second[0]));
}

TEST(Fingerprint, differs_in_every_word_that_ranks_must_agree_on) {
  Fingerprint mine;
  mine.collective = Collective::all_reduce;
  mine.count = 10;
  EXPECT_TRUE(agree(mine, mine));
  const auto differs = [&](auto change) {
    Fingerprint theirs = mine;
    change(theirs);
    return !agree(mine, theirs);
  };
  EXPECT_TRUE(differs([](Fingerprint& f) { f.collective = Collective::broadcast; }));
  EXPECT_TRUE(differs([](Fingerprint& f) { f.count = 11; }));
  EXPECT_TRUE(differs([](Fingerprint& f) { f.dtype = Dtype::f64; }));
  EXPECT_TRUE(differs([](Fingerprint& f) { f.op = ReduceOp::max; }));
  EXPECT_TRUE(differs([](Fingerprint& f) { f.root = 1; }));
  EXPECT_TRUE(differs([](Fingerprint& f) { f.algorithm = Algorithm::ring; }));
  EXPECT_TRUE(differs([](Fingerprint& f) { f.counts_hash = 1; }));
  EXPECT_TRUE(differs([](Fingerprint& f) { f.scalar_bits = 1; }));
  EXPECT_TRUE(differs([](Fingerprint& f) { f.user_hash = 1; }));
  EXPECT_TRUE(differs([](Fingerprint& f) { f.widens = 1; }));
  EXPECT_TRUE(differs([](Fingerprint& f) { f.from_you = 8; }));
}

TEST(Fingerprint, pairs_agree_when_one_sends_what_the_other_expects) {
  Fingerprint mine;
  mine.to_you = 8;
  mine.from_you = 24;
  Fingerprint theirs;
  theirs.to_you = 24;
  theirs.from_you = 8;
  EXPECT_TRUE(agree(mine, theirs));
  EXPECT_FALSE(agree(mine, mine));
}

TEST(Fingerprint, is_described_in_the_words_of_the_call) {
  Fingerprint call;
  call.collective = Collective::reduce;
  call.dtype = Dtype::bf16;
  call.count = 12;
  call.op = ReduceOp::max;
  call.root = 3;
  call.algorithm = Algorithm::binomial_tree;
  EXPECT_EQ(describe(call), "reduce(12 x bf16, max, root 3, binomial_tree)");
  call.widens = 1;
  EXPECT_EQ(describe(call), "reduce(12 x bf16 into f32, max, root 3, binomial_tree)");
}

TEST(ActivityReport, says_what_a_rank_does_instead) {
  ActivityReport report;
  EXPECT_EQ(describe(report), "it has not started any collective of this group");
  report.call.collective = Collective::barrier;
  report.sequence = 3;
  EXPECT_EQ(describe(report), "it has not started any collective of this group");
  report.sequence = kSetUpSequences + 7;  // the callers' seventh
  EXPECT_EQ(describe(report), "it has finished barrier() #7");
  report.running = 1;
  report.posted = 2;
  EXPECT_EQ(describe(report), "it is at barrier() #7 and waits in 2 sends or receives");
}

}  // namespace
}  // namespace tutti::engine
