// Symmetric memory, alone and mixed with plain memory on other ranks.
#include <cstring>

#include "support/trial.hpp"
#include "support/worlds.hpp"

namespace tutti::test {
namespace {

class Memory : public WorldTest {};

void try_all_collectives(Group& group, Arena* arena, std::size_t count, std::uint64_t seed) {
  for (int c = 0; c < kCollectives; ++c)
    for (bool in_place : {false, true}) {
      Case what{.collective = static_cast<Collective>(c), .count = count};
      what.in_place = in_place;
      what.root = group.size() - 1;
      what.seed = ++seed;
      if (arena) arena->reset();
      try_out(group, what, arena);
    }
}

constexpr std::size_t kArenaBytes = 16 << 20;

TEST_P(Memory, that_is_symmetric_on_all_ranks_serves_every_collective) {
  in_world([](Context& here) {
    Arena arena(*here.group, kArenaBytes);
    for (std::size_t count : {1, 4099, 50'021})
      try_all_collectives(*here.group, &arena, count, count);
  });
}

TEST_P(Memory, may_be_symmetric_on_one_rank_and_plain_on_another) {
  in_world([](Context& here) {
    Arena arena(*here.group, kArenaBytes);
    for (int odd_one = 0; odd_one < here.size; ++odd_one) {
      try_all_collectives(*here.group, here.rank == odd_one ? &arena : nullptr, 5003, 100);
      try_all_collectives(*here.group, here.rank == odd_one ? nullptr : &arena, 5003, 200);
    }
  });
}

TEST_P(Memory, that_is_symmetric_serves_calls_of_no_bytes) {
  in_world([](Context& here) {
    Arena arena(*here.group, kArenaBytes);
    const Buffer nothing{arena.take(64), 0, Dtype::f32};
    for (const Algorithm algorithm : {Algorithm::automatic, Algorithm::ring, Algorithm::pairwise}) {
      CallOptions options;
      options.algorithm = algorithm;
      const Status status = here.group->all_reduce(nothing, ReduceOp::sum, options);
      EXPECT_TRUE(status.ok()) << to_string(algorithm) << ": " << status.to_string();
    }
  });
}

TEST_P(Memory, that_is_symmetric_may_be_used_without_alignment) {
  in_world([](Context& here) {
    Arena arena(*here.group, kArenaBytes);
    for (std::size_t misalign : {1, 2, 13}) {
      arena.reset();
      Case what{.collective = Collective::all_reduce, .count = 4099, .in_place = true};
      what.misalign = misalign * static_cast<std::size_t>(here.rank + 1);
      try_out(*here.group, what, &arena);
    }
  });
}

TEST_P(Memory, that_is_symmetric_is_zero_at_first_and_lives_as_long_as_its_handle) {
  in_world([](Context& here) {
    std::vector<SymmetricMemory> kept;
    for (int i = 0; i < 5; ++i) {
      auto memory = here.group->allocate(100'000);
      ASSERT_TRUE(memory.ok()) << memory.status().to_string();
      ASSERT_GE(memory->bytes, 100'000U);
      const std::vector<std::byte> zeros(memory->bytes);
      EXPECT_EQ(std::memcmp(memory->data, zeros.data(), zeros.size()), 0);
      std::memset(memory->data, here.rank + i + 1, memory->bytes);
      kept.push_back(*memory);
    }
    kept.erase(kept.begin() + 1, kept.begin() + 3);
    for (SymmetricMemory& memory : kept) {
      const Buffer values = Buffer::of(static_cast<std::int32_t*>(memory.data), memory.bytes / 4);
      const Status status = here.group->all_reduce(values, ReduceOp::max);
      EXPECT_TRUE(status.ok()) << status.to_string();
    }
    EXPECT_EQ(static_cast<std::uint8_t*>(kept[0].data)[0], here.size);
    EXPECT_EQ(static_cast<std::uint8_t*>(kept[2].data)[0], here.size + 4);
  });
}

TEST_P(Memory, of_one_group_serves_its_subgroups) {
  in_world([](Context& here) {
    Arena arena(*here.group, 1 << 20);
    auto half = here.group->split(here.rank % 2, 0);
    ASSERT_TRUE(half.ok()) << half.status().to_string();
    try_all_collectives(**half, &arena, 4099, 5);
  });
}

TEST_P(Memory, of_zero_bytes_is_no_error) {
  in_world([](Context& here) {
    auto memory = here.group->allocate(0);
    EXPECT_TRUE(memory.ok()) << memory.status().to_string();
    EXPECT_TRUE(here.group->barrier().ok());
  });
}

INSTANTIATE_TEST_SUITE_P(World, Memory, testing::ValuesIn(one_world_of_each()), name_of);

}  // namespace
}  // namespace tutti::test
