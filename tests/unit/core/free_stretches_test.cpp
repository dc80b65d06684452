// Pieces of a pool, against a plain map of who has which unit.
#include "core/free_stretches.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <random>
#include <utility>
#include <vector>

namespace tutti {
namespace {

constexpr std::size_t kUnit = 256;

// A number per unit: 0 is free. Finds the smallest stretch with room by looking at every unit.
class UnitMap {
 public:
  explicit UnitMap(std::size_t units) : owners_(units) {}

  std::vector<std::pair<std::size_t, std::size_t>> free_runs() const {  // {length, first}
    std::vector<std::pair<std::size_t, std::size_t>> runs;
    for (std::size_t i = 0; i < owners_.size(); ++i) {
      if (owners_[i] != 0) continue;
      if (i == 0 || owners_[i - 1] != 0) runs.emplace_back(0, i);
      ++runs.back().first;
    }
    return runs;
  }
  std::optional<std::size_t> best(std::size_t units) const {
    auto runs = free_runs();
    std::erase_if(runs, [&](const auto& run) { return run.first < units; });
    if (runs.empty()) return std::nullopt;
    return std::min_element(runs.begin(), runs.end())->second;
  }
  void set(std::size_t first, std::size_t units, int owner) {
    for (std::size_t i = first; i < first + units; ++i) {
      EXPECT_NE(owners_[i] == 0, owner == 0)
          << "unit " << i << " is taken twice, or given back twice";
      owners_[i] = owner;
    }
  }
  std::size_t free_units() const {
    return static_cast<std::size_t>(std::count(owners_.begin(), owners_.end(), 0));
  }
  std::size_t largest() const {
    const auto runs = free_runs();
    return runs.empty() ? 0 : std::max_element(runs.begin(), runs.end())->first;
  }

 private:
  std::vector<int> owners_;
};

struct Piece {
  std::size_t offset = 0;
  std::size_t units = 0;
};

TEST(FreeStretches, do_as_a_map_of_all_units_does_whatever_is_taken_and_given_back) {
  for (std::uint64_t seed = 0; seed < 40; ++seed) {
    std::mt19937_64 random(seed);
    const std::size_t units = 1 + random() % 60;
    FreeStretches stretches(units * kUnit, kUnit);
    UnitMap map(units);
    std::vector<Piece> pieces;
    std::size_t peak = 0;
    for (int i = 0; i < 400; ++i) {
      if (random() % 5 < 3 || pieces.empty()) {
        const std::size_t bytes = 1 + random() % (kUnit * (1 + random() % (units + 2)));
        const std::size_t wanted = (bytes + kUnit - 1) / kUnit;
        const auto expected = map.best(wanted);
        const auto got = stretches.take(bytes);
        ASSERT_EQ(got.has_value(), expected.has_value()) << "seed " << seed << ", turn " << i;
        if (!got) continue;
        ASSERT_EQ(*got, *expected * kUnit) << "seed " << seed << ", turn " << i;
        map.set(*got / kUnit, wanted, i + 1);
        pieces.push_back({*got, wanted});
      } else {
        std::swap(pieces[random() % pieces.size()], pieces.back());
        map.set(pieces.back().offset / kUnit, pieces.back().units, 0);
        stretches.give_back(pieces.back().offset);
        pieces.pop_back();
      }
      peak = std::max(peak, units - map.free_units());
      ASSERT_EQ(stretches.bytes_free(), map.free_units() * kUnit);
      ASSERT_EQ(stretches.largest_free(), map.largest() * kUnit);
      ASSERT_EQ(stretches.peak_bytes(), peak * kUnit);
      std::size_t free_bytes = 0, last = units * kUnit;
      stretches.each_free([&](const FreeStretches::Stretch& stretch) {
        EXPECT_LE(stretch.bytes, last) << "from the largest to the smallest";
        last = stretch.bytes;
        free_bytes += stretch.bytes;
        return true;
      });
      ASSERT_EQ(free_bytes, map.free_units() * kUnit);
      for (const Piece& piece : pieces) {
        const auto found = stretches.piece_around(piece.offset + random() % (piece.units * kUnit));
        ASSERT_TRUE(found && found->offset == piece.offset && found->bytes == piece.units * kUnit);
      }
    }
    for (const Piece& piece : pieces) stretches.give_back(piece.offset);
    EXPECT_EQ(stretches.largest_free(), units * kUnit)
        << "neighbours that are free are one stretch";
  }
}

TEST(FreeStretches, have_no_room_where_there_is_none_and_for_more_than_there_can_be) {
  FreeStretches none(0, kUnit);
  EXPECT_FALSE(none.take(1));
  FreeStretches two(2 * kUnit, kUnit);
  EXPECT_FALSE(two.take(2 * kUnit + 1));
  EXPECT_FALSE(two.take(~std::size_t{0}));
  EXPECT_EQ(two.take(1), 0U);
  EXPECT_EQ(two.take(kUnit), kUnit);
  EXPECT_FALSE(two.take(1));
  EXPECT_EQ(two.largest_free(), 0U);
  two.give_back(kUnit);
  EXPECT_TRUE(two.piece_around(kUnit - 1));
  EXPECT_FALSE(two.piece_around(kUnit));
  EXPECT_FALSE(two.piece_around(2 * kUnit));
}

}  // namespace
}  // namespace tutti
