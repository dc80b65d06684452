// The hazards that are found by runs of chunks are those that are there, chunk by chunk.
#include "schedule/hazards.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <random>
#include <set>

#include "schedule/catalog.hpp"
#include "schedule/text.hpp"

namespace tutti::schedule {
namespace {

using Pairs = std::set<Hazard>;

// By the definition: a read waits for the last write of a chunk, a write for all reads since then,
// or for the last write where there was none.
Pairs chunk_by_chunk(const Program& program) {
  struct Story {
    int writer = -1;
    std::set<std::uint32_t> readers;
  };
  const Places places(program);
  std::vector<Story> stories(places.count());
  Pairs found;
  const auto each_chunk = [&](const Op& op, auto visit) {
    each_access(op, [&](const Region& region, bool writes) {
      for (std::uint32_t c = 0; c < region.count; ++c)
        visit(stories[places.index(region.space, region.first + c)], writes);
    });
  };
  for (std::uint32_t i = 0; i < program.ops.size(); ++i) {
    each_chunk(program.ops[i], [&](const Story& story, bool writes) {
      if (story.writer >= 0 && (!writes || story.readers.empty())) found.emplace(story.writer, i);
      if (writes)
        for (const std::uint32_t reader : story.readers) found.emplace(reader, i);
    });
    each_chunk(program.ops[i], [&](Story& story, bool writes) {
      if (writes)
        story = {static_cast<int>(i), {}};
      else
        story.readers.insert(i);
    });
  }
  return found;
}

void expect_the_same(const Program& program) {
  const std::vector<Hazard> by_runs = hazards(program);
  const auto is_later = [](const Hazard& a, const Hazard& b) { return a.second < b.second; };
  ASSERT_TRUE(std::is_sorted(by_runs.begin(), by_runs.end(), is_later)) << print(program);
  ASSERT_EQ(Pairs(by_runs.begin(), by_runs.end()), chunk_by_chunk(program)) << print(program);
}

TEST(Hazards, by_runs_and_chunk_by_chunk_are_the_same_for_the_whole_catalog) {
  for (const Entry& entry : catalog())
    for (const int n : {1, 2, 3, 5, 8, 13, 24})
      for (const bool in_place : {false, true}) {
        std::vector<int> host_of;
        for (int rank = 0; rank < n; ++rank) host_of.push_back(rank * 3 / n);
        Request request{entry.collective, n, 0, n / 2, in_place, 2, host_of};
        if (entry.applies && !entry.applies(request)) continue;
        for (request.rank = 0; request.rank < n; ++request.rank)
          expect_the_same(entry.build(request));
      }
}

// Long runs that are cut, joined and read in pieces, over more than one word of the bitmap.
TEST(Hazards, by_runs_and_chunk_by_chunk_are_the_same_for_anything) {
  std::mt19937 random(11);
  const auto below = [&](std::uint32_t most) {
    return static_cast<std::uint32_t>(random()) % most;
  };
  for (int round = 0; round < 300; ++round) {
    Program program;
    program.collective = round % 3 == 0 ? Collective::all_reduce : Collective::all_gather;
    program.size = 4;
    program.rank = static_cast<int>(below(4));
    program.in_place = round % 2 == 0;
    program.cut = 1 + below(150);
    program.scratch.assign(1 + below(200), 0);
    const auto region = [&] {
      const auto space = static_cast<Space>(below(3));
      const std::uint32_t chunks = chunk_count(program, space);
      const std::uint32_t first = below(chunks);
      const std::uint32_t left = chunks - first;
      return Region{space, first, below(2) == 0 ? below(std::min(left, 2U) + 1) : below(left + 1)};
    };
    for (std::uint32_t i = 0; i < 60; ++i) {
      Op op;
      op.kind = std::array{OpKind::send, OpKind::recv, OpKind::copy, OpKind::reduce}[below(4)];
      op.dst = region();
      op.src = region();
      for (std::uint32_t s = below(4); s > 0; --s)
        op.sources.push_back({kLocal, 0, region(), true});
      program.ops.push_back(op);
    }
    expect_the_same(program);
  }
}

}  // namespace
}  // namespace tutti::schedule
