// Symmetric memory, alone and mixed with plain memory on other ranks.
#include <sys/wait.h>
#include <unistd.h>

#include <cstring>
#include <fstream>
#include <random>
#include <set>
#include <sstream>
#include <thread>

#include "support/sanitized.hpp"
#include "support/trial.hpp"
#include "support/worlds.hpp"
#include "tutti/shared_heap.hpp"
#include "tutti/symmetric_pool.hpp"

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

// ---- the heap of a process, which peers have mapped

class Heap : public WorldTest {
 protected:
  // Every process has a heap before its ranks meet.
  static void in_world_of_heaps(const Body& body) {
    World world = GetParam();
    world.tune = [](Config&) {
      const Status status = SharedHeap::of_process().status();
      ASSERT_TRUE(status.ok()) << status.to_string();
    };
    run(world, body);
  }
};

SymmetricMemory block_of(std::size_t bytes) {
  const SharedHeap heap = *SharedHeap::of_process();
  auto block = heap.allocate(bytes);
  EXPECT_TRUE(block.ok()) << block.status().to_string();
  return {*block, bytes, std::shared_ptr<void>(*block, [heap](void* data) { heap.free(data); })};
}

// How many heaps this process has mapped, by their files.
std::size_t heaps_mapped() {
  std::ifstream maps("/proc/self/maps");
  std::set<std::string> files;
  for (std::string line; std::getline(maps, line);) {
    std::istringstream fields(line);
    std::string range, rights, offset, device, inode, name;
    fields >> range >> rights >> offset >> device >> inode >> name;
    if (name == "/memfd:tutti-heap") files.insert(inode);
  }
  return files.size();
}

TEST_P(Heap, is_mapped_by_the_ranks_of_the_host_and_serves_every_collective) {
  in_world_of_heaps([](Context& here) {
    const bool is_one_process = here.world.kind == WorldKind::threads;
    if (here.world.kind == WorldKind::shm || is_one_process) {
      EXPECT_EQ(heaps_mapped(), is_one_process ? 1U : static_cast<std::size_t>(here.size));
    }
    // Elsewhere on each rank, and beside blocks that come and go.
    const auto before = block_of(100'000 * static_cast<std::size_t>(here.rank + 1));
    Arena arena(block_of(kArenaBytes));
    for (std::size_t count : {1, 4099, 50'021}) {
      const auto other = block_of(1 << 20);
      try_all_collectives(*here.group, &arena, count, count);
    }
  });
}

TEST_P(Heap, may_be_used_on_one_rank_and_other_memory_on_another) {
  in_world_of_heaps([](Context& here) {
    Arena block(block_of(kArenaBytes));
    Arena symmetric(*here.group, kArenaBytes);
    for (int odd_one = 0; odd_one < here.size; ++odd_one) {
      try_all_collectives(*here.group, here.rank == odd_one ? &block : nullptr, 5003, 100);
      try_all_collectives(*here.group, here.rank == odd_one ? nullptr : &block, 5003, 200);
      try_all_collectives(*here.group, here.rank == odd_one ? &symmetric : &block, 50'021, 300);
    }
  });
}

TEST_P(Heap, gives_the_bits_of_plain_memory) {
  in_world_of_heaps([](Context& here) {
    constexpr std::size_t kCount = 300'007;
    std::vector<float> plain(kCount);
    std::mt19937 random(static_cast<unsigned>(here.rank));
    std::normal_distribution<float> normal;
    for (float& value : plain) value = normal(random);
    const auto block = block_of(kCount * sizeof(float));
    std::memcpy(block.data, plain.data(), block.bytes);
    ASSERT_TRUE(here.group->all_reduce(Buffer::of(plain), ReduceOp::sum).ok());
    const Buffer values = Buffer::of(static_cast<float*>(block.data), kCount);
    ASSERT_TRUE(here.group->all_reduce(values, ReduceOp::sum).ok());
    EXPECT_EQ(std::memcmp(block.data, plain.data(), block.bytes), 0);
  });
}

TEST_P(Heap, serves_subgroups_and_groups_that_were_made_before_it) {
  in_world([](Context& here) {
    ASSERT_TRUE(here.group->barrier().ok());
    Arena arena(block_of(kArenaBytes));
    try_all_collectives(*here.group, &arena, 4099, 1);  // nobody has mapped it
    auto copy = here.group->duplicate();
    ASSERT_TRUE(copy.ok()) << copy.status().to_string();
    auto half = (*copy)->split(here.rank % 2, 0);
    ASSERT_TRUE(half.ok()) << half.status().to_string();
    for (Group* group : {copy->get(), half->get(), here.group.get()})
      try_all_collectives(*group, &arena, 4099, 2);
  });
}

TEST_P(Heap, of_one_rank_alone_harms_nobody) {
  in_world([](Context& here) {
    std::optional<Arena> arena;
    if (here.rank == 0) arena.emplace(block_of(kArenaBytes));
    auto copy = here.group->duplicate();
    ASSERT_TRUE(copy.ok()) << copy.status().to_string();
    try_all_collectives(**copy, arena ? &*arena : nullptr, 50'021, 1);
  });
}

TEST_P(Heap, is_carried_by_messages_too) {
  in_world_of_heaps([](Context& here) {
    constexpr std::size_t kCount = 100'003;
    const auto block = block_of(2 * kCount * sizeof(std::int32_t));
    auto* out = static_cast<std::int32_t*>(block.data);
    for (std::size_t i = 0; i < kCount; ++i) out[i] = static_cast<std::int32_t>(i) + here.rank;
    const int next = (here.rank + 1) % here.size, last = (here.rank + here.size - 1) % here.size;
    Work sent = here.group->isend(ConstBuffer{out, kCount, Dtype::i32}, next);
    EXPECT_TRUE(here.group->recv(Buffer{out + kCount, kCount, Dtype::i32}, last).ok());
    EXPECT_TRUE(sent.wait().ok());
    for (std::size_t i = 0; i < kCount; ++i)
      ASSERT_EQ(out[kCount + i], static_cast<std::int32_t>(i) + last);
  });
}

// "rw-s": others see what is written there; "rw-p": nobody does.
std::string rights_at(const void* address) {
  std::ifstream maps("/proc/self/maps");
  for (std::string line; std::getline(maps, line);) {
    std::istringstream fields(line);
    std::uintptr_t begin = 0, end = 0;
    char dash = 0;
    std::string rights;
    fields >> std::hex >> begin >> dash >> end >> rights;
    const auto at = reinterpret_cast<std::uintptr_t>(address);
    if (begin <= at && at < end) return rights;
  }
  return "";
}

TEST_P(Heap, is_out_of_reach_where_a_call_has_failed_before_its_caller_hears_of_it) {
  in_world_of_heaps([](Context& here) {
    constexpr std::size_t kCount = 100'003;
    const auto meant = block_of(kCount * sizeof(float)), other = block_of(kCount * sizeof(float));
    std::memset(meant.data, 0, meant.bytes);
    const Buffer values = Buffer::of(static_cast<float*>(meant.data), kCount);
    ASSERT_TRUE(here.group->all_reduce(values, ReduceOp::sum).ok());
    EXPECT_EQ(rights_at(meant.data), "rw-s");
    meet(here);
    if (here.rank != 0) {
      CallOptions soon;
      soon.timeout = std::chrono::milliseconds(50);
      EXPECT_FALSE(here.group->all_reduce(values, ReduceOp::sum, soon).ok());
      // Elsewhere nobody could have written there.
      EXPECT_EQ(rights_at(meant.data), here.world.kind == WorldKind::shm ? "rw-p" : "rw-s");
      EXPECT_EQ(static_cast<float*>(meant.data)[kCount - 1], 0.0F);
    }
    EXPECT_EQ(rights_at(other.data), "rw-s");
    meet(here, "after it");
  });
}

// As workers that load data are: while their parent trains.
TEST_P(Heap, is_left_alone_by_children_of_its_process) {
  in_world_of_heaps([](Context& here) {
    constexpr std::size_t kCount = 100'003;
    const auto data = block_of(kCount * sizeof(float)), sums = block_of(kCount * sizeof(float));
    const std::span values(static_cast<float*>(data.data), kCount);
    const std::span reduced(static_cast<float*>(sums.data), kCount);
    std::fill(values.begin(), values.end(), 3.0F);
    for (int turn = 0; turn < 5; ++turn) {
      const pid_t child = fork();
      if (child == 0) {
        const bool reads = std::count(values.begin(), values.end(), 3.0F) == kCount;
        std::fill(values.begin(), values.end(), 4.0F);
        if (kMayAllocateAfterFork) {
          const auto own = block_of(1 << 20);
          std::memset(own.data, 1, own.bytes);
        }
        _exit(reads ? 0 : 1);
      }
      for (int i = 0; i < 20; ++i) {
        std::fill(reduced.begin(), reduced.end(), static_cast<float>(here.rank + i));
        const Status status =
            here.group->all_reduce(Buffer::of(reduced.data(), kCount), ReduceOp::sum);
        ASSERT_TRUE(status.ok()) << status.to_string();
        const auto expected = static_cast<float>(here.size * i + here.size * (here.size - 1) / 2);
        ASSERT_EQ(std::count(reduced.begin(), reduced.end(), expected), kCount);
      }
      int status = 1;
      ASSERT_EQ(waitpid(child, &status, 0), child);
      EXPECT_EQ(status, 0);
    }
    EXPECT_EQ(std::count(values.begin(), values.end(), 3.0F), kCount);
    EXPECT_TRUE(here.group->barrier().ok());
  });
}

class Pool : public WorldTest {};

SymmetricPool made_pool(const Context& here, std::size_t bytes) {
  auto pool = SymmetricPool::create(here.group, bytes);
  EXPECT_TRUE(pool.ok()) << pool.status().to_string();
  return pool.ok() ? *pool : SymmetricPool();
}

SymmetricMemory taken(const SymmetricPool& pool, std::size_t bytes) {
  auto piece = pool.take(bytes);
  EXPECT_TRUE(piece.ok()) << piece.status().to_string();
  return piece.ok() ? *piece : SymmetricMemory();
}

TEST_P(Pool, gives_pieces_that_lie_elsewhere_on_each_rank_and_serve_every_collective) {
  in_world([](Context& here) {
    const SymmetricPool pool = made_pool(here, kArenaBytes + (1 << 20));
    const SymmetricMemory before = taken(pool, 4000 * static_cast<std::size_t>(here.rank + 1));
    Arena arena(taken(pool, kArenaBytes));
    for (std::size_t count : {1, 4099, 50'021})
      try_all_collectives(*here.group, &arena, count, count);
  });
}

// Ranks take what they like in any order, and use what they have in calls that all make.
TEST_P(Pool, serves_ranks_that_take_and_give_back_differently) {
  in_world([](Context& here) {
    const SymmetricPool pool = made_pool(here, 1 << 20);
    std::mt19937 random(static_cast<unsigned>(here.rank));
    std::vector<SymmetricMemory> kept;
    for (int turn = 0; turn < 20; ++turn) {
      for (std::size_t i = 0; i < random() % 4; ++i)
        if (auto piece = pool.take(1 + random() % 20'000); piece.ok()) kept.push_back(*piece);
      if (kept.size() > 3) kept.erase(kept.begin() + static_cast<long>(random() % kept.size()));
      constexpr std::size_t kCount = 6007;
      const SymmetricMemory piece = taken(pool, 4 * kCount);
      EXPECT_EQ(reinterpret_cast<std::uintptr_t>(piece.data) % SymmetricPool::kAlignmentBytes, 0U);
      const std::span values(static_cast<std::int32_t*>(piece.data), kCount);
      std::fill(values.begin(), values.end(), here.rank + turn);
      const Status status = here.group->all_reduce(Buffer::of(values), ReduceOp::sum);
      ASSERT_TRUE(status.ok()) << status.to_string();
      const int expected = here.size * turn + here.size * (here.size - 1) / 2;
      ASSERT_EQ(std::count(values.begin(), values.end(), expected), kCount) << "turn " << turn;
    }
    EXPECT_LE(pool.peak_bytes(), pool.bytes());
    kept.clear();
    EXPECT_EQ(pool.largest_free(), pool.bytes());
    EXPECT_TRUE(here.group->barrier().ok());
  });
}

TEST_P(Pool, keeps_a_piece_until_its_last_copy_is_gone_and_itself_until_the_last_piece_is) {
  in_world([](Context& here) {
    SymmetricPool pool = made_pool(here, 10'000);
    EXPECT_EQ(pool.bytes() % SymmetricPool::kAlignmentBytes, 0U);
    SymmetricMemory piece = taken(pool, 5000);
    auto copy = std::make_unique<SymmetricMemory>(piece);
    piece = {};
    EXPECT_LT(pool.bytes_free(), pool.bytes());
    const auto none = pool.take(pool.bytes());
    EXPECT_EQ(none.status().code(), Code::out_of_memory) << none.status().to_string();
    EXPECT_TRUE(here.group->health().ok());
    pool = {};
    std::memset(copy->data, here.rank, copy->bytes);
    const Buffer values = Buffer::of(static_cast<std::int8_t*>(copy->data), copy->bytes);
    EXPECT_TRUE(here.group->all_reduce(values, ReduceOp::max).ok());
    EXPECT_EQ(static_cast<std::int8_t*>(copy->data)[4999], here.size - 1);
    EXPECT_TRUE(here.group->barrier().ok());
    EXPECT_TRUE(taken(made_pool(here, 0), 0).data == nullptr);
  });
}

TEST_P(Pool, gives_nothing_any_more_when_its_group_has_failed_or_is_gone) {
  in_world([](Context& here) {
    auto copy = here.group->duplicate();
    ASSERT_TRUE(copy.ok()) << copy.status().to_string();
    auto pool = SymmetricPool::create(*copy, 1000);
    ASSERT_TRUE(pool.ok()) << pool.status().to_string();
    SymmetricMemory piece = taken(*pool, 100);
    meet(here);
    if (here.rank == 0) (*copy)->abort("as a test");
    EXPECT_EQ((*copy)->barrier().code(), Code::aborted);
    piece = {};
    EXPECT_EQ(pool->bytes_free(), pool->bytes());
    EXPECT_EQ(pool->take(100).status().code(), Code::aborted);
    copy->reset();
    const Status gone = pool->take(100).status();
    EXPECT_EQ(gone.code(), Code::aborted);
    EXPECT_NE(gone.message().find("destroyed"), std::string::npos) << gone.to_string();
  });
}

TEST_P(Pool, gives_each_of_many_threads_memory_of_its_own) {
  in_world([](Context& here) {
    const SymmetricPool pool = made_pool(here, 1 << 18);
    const auto use = [&](std::uint8_t sign) {
      std::mt19937 random(sign);
      for (int turn = 0; turn < 200; ++turn) {
        const auto piece = pool.take(1 + random() % 30'000);
        if (!piece.ok()) continue;  // the others have it all
        std::memset(piece->data, sign, piece->bytes);
        const std::span bytes(static_cast<std::uint8_t*>(piece->data), piece->bytes);
        EXPECT_EQ(std::count(bytes.begin(), bytes.end(), sign),
                  static_cast<std::ptrdiff_t>(bytes.size()));
      }
    };
    std::vector<std::thread> threads;
    for (int t = 0; t < 4; ++t) threads.emplace_back(use, static_cast<std::uint8_t>(t + 1));
    for (std::thread& thread : threads) thread.join();
    EXPECT_EQ(pool.bytes_free(), pool.bytes());
    EXPECT_TRUE(here.group->barrier().ok());
  });
}

INSTANTIATE_TEST_SUITE_P(World, Heap, testing::ValuesIn(one_world_of_each()), name_of);
INSTANTIATE_TEST_SUITE_P(World, Pool, testing::ValuesIn(one_world_of_each()), name_of);
INSTANTIATE_TEST_SUITE_P(Ofi, Memory, testing::Values(World{.kind = WorldKind::ofi, .size = 3}),
                         name_of);
INSTANTIATE_TEST_SUITE_P(World, Memory, testing::ValuesIn(one_world_of_each()), name_of);

}  // namespace
}  // namespace tutti::test
