#include "transport/regions.hpp"

#include <gtest/gtest.h>

namespace tutti::transport {
namespace {

TEST(RegionTable, own_memory_is_shared_only_with_those_who_have_mapped_it) {
  RegionTable table;
  auto region = table.allocate(7, 10'000, false);
  ASSERT_TRUE(region.ok());
  EXPECT_EQ(table.share(1, region->region.data, 10).region, 0u);
  table.mark_mapped(1, 7);
  const MemoryRef ref = table.share(1, region->region.data + 9'990, 10);
  EXPECT_EQ(ref.region, 7u);
  EXPECT_EQ(ref.offset, 9'990u);
  EXPECT_EQ(table.share(2, region->region.data, 10).region, 0u);
  EXPECT_EQ(table.share(1, region->region.data + 9'991, 10).region, 0u);  // one byte too far
  int elsewhere = 0;
  EXPECT_EQ(table.share(1, &elsewhere, sizeof elsewhere).region, 0u);
}

TEST(RegionTable, reach_stays_within_the_region) {
  RegionTable table;
  auto mapping = Mapping::anonymous(100);
  ASSERT_TRUE(mapping.ok());
  const std::byte* memory = mapping->data();
  ASSERT_TRUE(table.add(3, 7, std::make_shared<Mapping>(std::move(*mapping))));
  EXPECT_EQ(table.reach(3, {7, 10}, 90), memory + 10);
  EXPECT_EQ(table.reach(3, {7, 10}, 91), nullptr);
  EXPECT_EQ(table.reach(3, {7, ~std::uint64_t{0}}, 2), nullptr);
  EXPECT_EQ(table.reach(3, {7, 0}, ~std::size_t{0}), nullptr);
  EXPECT_EQ(table.reach(2, {7, 0}, 1), nullptr);
  ASSERT_TRUE(table.add(3, 8, nullptr));  // one that this process could not map
  EXPECT_TRUE(table.has_come(3, 8));
  EXPECT_EQ(table.reach(3, {8, 0}, 1), nullptr);
  table.free(7);
  EXPECT_FALSE(table.has_come(3, 7));
}

// Whoever found it may hold its address.
TEST(RegionTable, a_peer_cannot_replace_what_it_has_handed_over) {
  RegionTable table;
  auto first = Mapping::anonymous(100), second = Mapping::anonymous(200);
  ASSERT_TRUE(first.ok() && second.ok());
  const std::byte* memory = first->data();
  ASSERT_TRUE(table.add(3, 7, std::make_shared<Mapping>(std::move(*first))));
  EXPECT_FALSE(table.add(3, 7, std::make_shared<Mapping>(std::move(*second))));
  EXPECT_EQ(table.reach(3, {7, 0}, 100), memory);
  EXPECT_FALSE(table.add(3, 0, nullptr));
  EXPECT_FALSE(table.add(3, ~std::uint64_t{0}, nullptr));
}

TEST(RegionTable, an_id_is_taken_once_and_zero_never) {
  RegionTable table;
  EXPECT_EQ(table.allocate(0, 10, false).status().code(), Code::invalid_argument);
  EXPECT_EQ(table.allocate(7, 0, false).status().code(), Code::invalid_argument);
  ASSERT_TRUE(table.allocate(7, 10, false).ok());
  EXPECT_EQ(table.allocate(7, 10, false).status().code(), Code::invalid_argument);
}

TEST(RegionTable, more_than_the_machine_has_is_out_of_memory_and_harms_nobody) {
  RegionTable table;
  for (const bool shared : {false, true})
    EXPECT_EQ(table.allocate(7, std::size_t{1} << 60, shared).status().code(), Code::out_of_memory);
}

}  // namespace
}  // namespace tutti::transport
