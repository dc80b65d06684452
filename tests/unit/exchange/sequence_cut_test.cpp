#include "tutti/exchange/sequence_cut.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>

namespace tutti::exchange {
namespace {

using Runs = std::vector<IndexRun>;

TEST(SequenceCut, zigzag_gives_a_rank_its_chunk_and_the_mirrored_one) {
  EXPECT_EQ(runs_of(SequenceCut::zigzag, 32, 4, 0), (Runs{{0, 4}, {28, 4}}));
  EXPECT_EQ(runs_of(SequenceCut::zigzag, 32, 4, 1), (Runs{{4, 4}, {24, 4}}));
  EXPECT_EQ(runs_of(SequenceCut::zigzag, 32, 4, 3), (Runs{{12, 8}}));  // neighbours are one
  EXPECT_EQ(runs_of(SequenceCut::zigzag, 32, 1, 0), (Runs{{0, 32}}));
  EXPECT_EQ(runs_of(SequenceCut::contiguous, 10, 4, 2), (Runs{{6, 3}}));
}

TEST(SequenceCut, every_index_belongs_to_exactly_one_rank) {
  for (const SequenceCut cut : {SequenceCut::contiguous, SequenceCut::zigzag}) {
    for (std::int64_t length : {0, 1, 2, 7, 8, 31, 32, 257}) {
      for (int ranks = 1; ranks <= 9; ++ranks) {
        std::vector<std::int64_t> all;
        for (int rank = 0; rank < ranks; ++rank) {
          const auto runs = runs_of(cut, length, ranks, rank);
          const auto own = indices_of(runs);
          EXPECT_TRUE(std::is_sorted(own.begin(), own.end()));
          EXPECT_EQ(static_cast<std::int64_t>(own.size()), count_of(runs));
          all.insert(all.end(), own.begin(), own.end());
        }
        std::sort(all.begin(), all.end());
        std::vector<std::int64_t> wanted(static_cast<std::size_t>(length));
        std::iota(wanted.begin(), wanted.end(), 0);
        EXPECT_EQ(all, wanted) << to_string(cut) << " of " << length << " over " << ranks;
      }
    }
  }
}

TEST(SequenceCut, zigzag_leaves_every_rank_the_same_number_of_causal_pairs) {
  const int ranks = 4;
  const std::int64_t length = 64;
  std::vector<std::int64_t> pairs;
  for (int rank = 0; rank < ranks; ++rank) {
    std::int64_t own = 0;
    for (const std::int64_t query : indices_of(runs_of(SequenceCut::zigzag, length, ranks, rank)))
      own += query + 1;
    pairs.push_back(own);
  }
  EXPECT_EQ(pairs, std::vector<std::int64_t>(ranks, length * (length + 1) / 2 / ranks));
}

TEST(SequenceCut, parts_are_those_of_torch_chunk) {
  EXPECT_EQ(part_counts(257, 2), (std::vector<std::size_t>{129, 128}));
  EXPECT_EQ(part_counts(7, 4), (std::vector<std::size_t>{2, 2, 2, 1}));
  EXPECT_EQ(part_counts(5, 4), (std::vector<std::size_t>{2, 2, 1, 0}));
  EXPECT_EQ(part_of(5, 4, 3), (IndexRun{5, 0}));
}

TEST(SequenceCut, slice_counts_within_the_runs) {
  const Runs runs = {{4, 4}, {24, 4}};
  EXPECT_EQ(slice_of(runs, 0, 8), runs);
  EXPECT_EQ(slice_of(runs, 2, 4), (Runs{{6, 2}, {24, 2}}));
  EXPECT_EQ(slice_of(runs, 4, 2), (Runs{{24, 2}}));
  EXPECT_EQ(slice_of(runs, 7, 9), (Runs{{27, 1}}));
  EXPECT_TRUE(slice_of(runs, 8, 1).empty());
}

TEST(SequenceCut, rows_of_a_batch_are_cut_alike) {
  const std::vector<int> batch = {0, 1, 2, 3, 4, 5, 6, 7, 10, 11, 12, 13, 14, 15, 16, 17};
  const auto own = take_runs<int>(batch, 8, runs_of(SequenceCut::zigzag, 8, 2, 0));
  EXPECT_EQ(own, (std::vector<int>{0, 1, 6, 7, 10, 11, 16, 17}));
}

}  // namespace
}  // namespace tutti::exchange
