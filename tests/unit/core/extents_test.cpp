#include "core/extents.hpp"

#include <gtest/gtest.h>

#include <random>

namespace tutti {
namespace {

// The same, with a mark for each number.
struct Marks {
  std::vector<bool> marked = std::vector<bool>(60);

  std::vector<Extent> runs(Extent within, bool of) const {
    std::vector<Extent> found;
    for (std::size_t i = within.begin; i < within.end; ++i) {
      if (marked[i] != of) continue;
      if (found.empty() || found.back().end != i) found.push_back({i, i});
      ++found.back().end;
    }
    return found;
  }
  void set(Extent range, bool to) {
    for (std::size_t i = range.begin; i < range.end; ++i) marked[i] = to;
  }
};

TEST(Extents, do_as_a_mark_for_each_number_does) {
  for (std::uint64_t seed = 0; seed < 50; ++seed) {
    std::mt19937_64 random(seed);
    Extents extents;
    Marks marks;
    const Extent all{0, marks.marked.size()};
    for (int turn = 0; turn < 300; ++turn) {
      const std::size_t a = random() % 61, b = random() % 61;
      const Extent range{std::min(a, b), std::max(a, b)};
      if (random() % 2 == 0) {
        extents.add(range);
        marks.set(range, true);
      } else {
        ASSERT_EQ(extents.remove(range), marks.runs(range, true)) << "seed " << seed;
        marks.set(range, false);
      }
      ASSERT_EQ(extents.common(range), marks.runs(range, true)) << "seed " << seed;
      ASSERT_EQ(extents.common(all), marks.runs(all, true)) << "seed " << seed;
      ASSERT_EQ(extents.missing(all), marks.runs(all, false)) << "seed " << seed;
      std::size_t length = 0;
      for (const Extent& run : marks.runs(all, true)) length += run.length();
      ASSERT_EQ(extents.length(), length);
    }
  }
}

}  // namespace
}  // namespace tutti
