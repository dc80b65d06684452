// The shared heap of a process: its blocks, its memory, what its peers and its children see of it.
#include "transport/heap_arena.hpp"

#include <gtest/gtest.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <functional>
#include <map>
#include <random>
#include <span>
#include <thread>
#include <vector>

namespace tutti::transport {
namespace {

constexpr std::size_t kPage = 4096;
constexpr std::size_t kMiB = 1 << 20;

std::unique_ptr<HeapArena> made(std::size_t bytes, std::size_t kept_bytes = 256 * kMiB) {
  auto arena = HeapArena::create({.bytes = bytes, .kept_bytes = kept_bytes});
  EXPECT_TRUE(arena.ok()) << arena.status().to_string();
  return *std::move(arena);
}

std::span<std::uint8_t> block_of(HeapArena& arena, std::size_t bytes) {
  auto block = arena.allocate(bytes);
  EXPECT_TRUE(block.ok()) << block.status().to_string();
  return {static_cast<std::uint8_t*>(*block), bytes};
}

// As the system counts it, peers' share included.
std::size_t pages_of_file(const HeapArena& arena) {
  struct stat found {};
  EXPECT_EQ(::fstat(arena.file()->get(), &found), 0);
  return static_cast<std::size_t>(found.st_blocks) * 512 / kPage;
}

// What a peer in another process has.
std::span<std::uint8_t> as_a_peer_sees(const HeapArena& arena, Mapping& mapped,
                                       std::span<std::uint8_t> block) {
  auto mapping = Mapping::shared(arena.file()->get(), arena.mapping()->bytes(), true);
  EXPECT_TRUE(mapping.ok()) << mapping.status().to_string();
  mapped = *std::move(mapping);
  const auto offset = reinterpret_cast<std::byte*>(block.data()) - arena.mapping()->data();
  return {reinterpret_cast<std::uint8_t*>(mapped.data() + offset), block.size()};
}

bool is_all(std::span<const std::uint8_t> bytes, int value) {
  return std::all_of(bytes.begin(), bytes.end(), [&](int each) { return each == value; });
}

// Runs `body` in a child of fork(), where it says whether all was well.
bool in_child(const std::function<bool()>& body) {
  const pid_t child = ::fork();
  if (child == 0) ::_exit(body() ? 0 : 1);
  int status = 1;
  return ::waitpid(child, &status, 0) == child && status == 0;
}

TEST(HeapArena, gives_blocks_that_nobody_else_has_and_that_keep_what_is_in_them) {
  for (std::uint64_t seed = 0; seed < 8; ++seed) {
    std::mt19937_64 random(seed);
    const auto arena = made(8 * kMiB, 1 * kMiB);
    std::map<std::uint8_t*, std::pair<std::size_t, std::uint8_t>> blocks;
    std::size_t in_use = 0;
    for (int turn = 0; turn < 300; ++turn) {
      if (random() % 5 < 3) {
        const std::size_t bytes = 1 + random() % (random() % 4 == 0 ? kMiB : 100'000);
        auto block = arena->allocate(bytes);
        if (!block.ok()) {
          ASSERT_EQ(block.status().code(), Code::out_of_memory) << block.status().to_string();
          continue;
        }
        auto* data = static_cast<std::uint8_t*>(*block);
        ASSERT_EQ(reinterpret_cast<std::uintptr_t>(data) % SharedHeap::kAlignmentBytes, 0U);
        ASSERT_TRUE(arena->mapping()->contains(data, bytes));
        std::memset(data, turn % 251, bytes);
        blocks[data] = {bytes, static_cast<std::uint8_t>(turn % 251)};
        in_use += (bytes + kPage - 1) / kPage * kPage;
      } else if (!blocks.empty()) {
        auto at = std::next(blocks.begin(), static_cast<long>(random() % blocks.size()));
        ASSERT_TRUE(is_all({at->first, at->second.first}, at->second.second)) << "seed " << seed;
        arena->free(at->first);
        in_use -= (at->second.first + kPage - 1) / kPage * kPage;
        blocks.erase(at);
      }
      const auto usage = arena->usage();
      ASSERT_EQ(usage.in_use_bytes, in_use);
      ASSERT_LE(usage.kept_bytes, std::max(kMiB, in_use) + kMiB);
      ASSERT_EQ(pages_of_file(*arena) * kPage, in_use + usage.kept_bytes) << "seed " << seed;
    }
    for (const auto& [data, what] : blocks) {
      ASSERT_TRUE(is_all({data, what.first}, what.second));
      arena->free(data);
    }
    arena->trim();
    EXPECT_EQ(pages_of_file(*arena), 0U);
    EXPECT_EQ(block_of(*arena, 8 * kMiB).size(), 8 * kMiB) << "free neighbours are one stretch";
  }
}

TEST(HeapArena, keeps_what_is_given_back_and_gives_what_is_too_much_to_the_system) {
  const auto arena = made(64 * kMiB, 4 * kMiB);
  const auto first = block_of(*arena, 3 * kMiB);
  arena->free(first.data());
  EXPECT_EQ(arena->usage().kept_bytes, 3 * kMiB);
  EXPECT_EQ(block_of(*arena, 3 * kMiB).data(), first.data()) << "the next one gets it";
  EXPECT_EQ(pages_of_file(*arena) * kPage, 3 * kMiB);
  const auto large = block_of(*arena, 20 * kMiB);
  arena->free(large.data());
  EXPECT_LE(arena->usage().kept_bytes, 4 * kMiB);
  arena->free(first.data());
  arena->trim();
  EXPECT_EQ(pages_of_file(*arena), 0U);
  EXPECT_EQ(arena->usage().peak_bytes, 23 * kMiB);
}

TEST(HeapArena, says_what_is_missing_where_there_is_no_room_and_goes_on) {
  const auto arena = made(2 * kMiB);
  const auto block = block_of(*arena, kMiB);
  const auto none = arena->allocate(2 * kMiB);
  EXPECT_EQ(none.status().code(), Code::out_of_memory);
  EXPECT_NE(none.status().message().find("TUTTI_SHARED_HEAP_BYTES"), std::string::npos);
  arena->free(block.data());
  EXPECT_EQ(*arena->allocate(0), nullptr);
  arena->free(nullptr);
  EXPECT_EQ(block_of(*arena, 2 * kMiB).size(), 2 * kMiB);
#if !defined(__SANITIZE_THREAD__)  // it has no room for so many addresses
  // More addresses than memory: pages are what there is too little of.
  const auto wide = made(std::size_t{1} << 44);
  EXPECT_EQ(wide->allocate(std::size_t{1} << 43).status().code(), Code::out_of_memory);
  EXPECT_EQ(wide->usage().in_use_bytes, 0U);
  EXPECT_EQ(pages_of_file(*wide), 0U);
#endif
}

TEST(HeapArena, serves_many_threads) {
  const auto arena = made(64 * kMiB, kMiB);
  const auto use = [&](std::uint8_t sign) {
    std::mt19937 random(sign);
    std::vector<std::span<std::uint8_t>> mine;
    for (int turn = 0; turn < 150; ++turn) {
      mine.push_back(block_of(*arena, 1 + random() % 300'000));
      std::memset(mine.back().data(), sign, mine.back().size());
      if (mine.size() < 4 && turn < 149) continue;
      for (const auto& block : mine) {
        EXPECT_TRUE(is_all(block, sign));
        arena->free(block.data());
      }
      mine.clear();
    }
  };
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t) threads.emplace_back(use, static_cast<std::uint8_t>(t + 1));
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(arena->usage().in_use_bytes, 0U);
}

TEST(HeapArena, is_what_peers_see_too) {
  const auto arena = made(4 * kMiB);
  const auto block = block_of(*arena, 100'000);
  Mapping mapped;
  const auto theirs = as_a_peer_sees(*arena, mapped, block);
  std::memset(block.data(), 5, block.size());
  EXPECT_TRUE(is_all(theirs, 5));
  std::memset(theirs.data(), 6, theirs.size());
  EXPECT_TRUE(is_all(block, 6));
}

// ---- after a failure

TEST(HeapArena, that_is_withdrawn_keeps_its_contents_and_nobody_else_writes_there) {
  const auto arena = made(4 * kMiB);
  const auto block = block_of(*arena, 100'000);
  const auto next = block_of(*arena, 100'000);
  Mapping mapped;
  const auto theirs = as_a_peer_sees(*arena, mapped, block);
  std::memset(block.data(), 5, block.size());
  std::memset(next.data(), 1, next.size());
  const auto version = arena->version();
  ASSERT_TRUE(arena->withdraw(block.data(), block.size()));
  EXPECT_GT(arena->version(), version);
  std::memset(theirs.data(), 6, theirs.size());
  EXPECT_TRUE(is_all(block, 5)) << "to the last byte: the block's last page is its own";
  std::memset(block.data(), 7, block.size());
  EXPECT_TRUE(is_all(theirs, 6));
  EXPECT_TRUE(is_all(next, 1));
  EXPECT_EQ(arena->in_reach(block.data(), block.size()).length(), 0U);
  EXPECT_EQ(arena->in_reach(block.data() + block.size() - 1, 1).length(), 0U);
  const Extent reach = arena->in_reach(next.data(), next.size());
  EXPECT_EQ(reach.begin, (block.size() + kPage - 1) / kPage * kPage);
  EXPECT_EQ(reach.end, 4 * kMiB);
}

// Its neighbours in the block may be another group's.
TEST(HeapArena, withdraws_no_page_of_which_a_part_was_not_meant) {
  const auto arena = made(4 * kMiB);
  const auto block = block_of(*arena, 10 * kPage);
  std::memset(block.data(), 5, block.size());
  Mapping mapped;
  const auto theirs = as_a_peer_sees(*arena, mapped, block);
  ASSERT_TRUE(arena->withdraw(block.data() + 100, 5 * kPage));
  std::memset(theirs.data(), 6, theirs.size());
  EXPECT_TRUE(is_all(block.subspan(0, kPage), 6));
  EXPECT_TRUE(is_all(block.subspan(kPage, 4 * kPage), 5));
  EXPECT_TRUE(is_all(block.subspan(5 * kPage), 6));
  // Again, and more: what is private stays as it is.
  ASSERT_TRUE(arena->withdraw(block.data(), block.size()));
  std::memset(theirs.data(), 8, theirs.size());
  EXPECT_TRUE(is_all(block.subspan(0, kPage), 6));
  EXPECT_TRUE(is_all(block.subspan(kPage, 4 * kPage), 5));
  EXPECT_TRUE(is_all(block.subspan(5 * kPage), 6));
  EXPECT_EQ(arena->in_reach(block.data(), 1).length(), 0U);
}

TEST(HeapArena, gives_nobody_what_was_withdrawn_and_its_memory_to_the_system) {
  const auto arena = made(4 * kMiB);
  const auto block = block_of(*arena, kMiB);
  std::memset(block.data(), 5, block.size());
  ASSERT_TRUE(arena->withdraw(block.data(), block.size()));
  arena->free(block.data());
  EXPECT_EQ(pages_of_file(*arena), 0U);
  EXPECT_EQ(arena->usage().in_use_bytes, 0U);
  EXPECT_EQ(arena->usage().kept_bytes, 0U);
  EXPECT_EQ(arena->usage().limit_bytes, 3 * kMiB);
  for (int i = 0; i < 3; ++i) EXPECT_NE(block_of(*arena, kMiB).data(), block.data());
  EXPECT_FALSE(arena->allocate(1).ok());
}

// ---- fork

TEST(HeapArena, of_the_parent_is_read_and_written_by_a_child_that_changes_nothing_there) {
  const auto arena = made(8 * kMiB);
  const auto block = block_of(*arena, 200'000);
  const auto gone = block_of(*arena, 200'000);
  const auto unused = block_of(*arena, 200'000);
  std::memset(block.data(), 5, block.size());
  std::memset(gone.data(), 6, gone.size());
  ASSERT_TRUE(arena->withdraw(gone.data(), gone.size()));
  arena->free(unused.data());
  const auto pages = pages_of_file(*arena);
  EXPECT_TRUE(in_child([&] {
    const bool reads = is_all(block, 5) && is_all(gone, 6);
    std::memset(block.data(), 9, block.size());
    std::memset(gone.data(), 9, gone.size());
    auto own = arena->allocate(300'000);
    if (!own.ok() || arena->contains(*own)) return false;
    std::memset(*own, 3, 300'000);
    arena->free(*own);
    arena->free(block.data());
    arena->free(gone.data());
    arena->trim();
    return reads && is_all(block, 9) && is_all(gone, 9);
  }));
  EXPECT_TRUE(is_all(block, 5));
  EXPECT_TRUE(is_all(gone, 6));
  EXPECT_EQ(pages_of_file(*arena), pages);
  EXPECT_EQ(arena->usage().in_use_bytes, 2 * 200'704U);
  arena->free(block.data());
  arena->free(gone.data());
}

// What docs/transports/shared_heap.md says of it.
TEST(HeapArena, of_the_parent_changes_under_a_child_until_that_has_written_to_the_page) {
  const auto arena = made(8 * kMiB);
  const auto block = block_of(*arena, 2 * kPage);
  std::memset(block.data(), 5, block.size());
  int turn[2], back[2];
  ASSERT_EQ(::pipe(turn), 0);
  ASSERT_EQ(::pipe(back), 0);
  const pid_t child = ::fork();
  if (child == 0) {
    char word = 0;
    block[0] = 7;  // the first page has a copy from here on
    bool good = ::write(back[1], &word, 1) == 1 && ::read(turn[0], &word, 1) == 1;
    good = good && block[0] == 7 && is_all(block.subspan(1, kPage - 1), 5);
    good = good && is_all(block.subspan(kPage), 6);
    ::_exit(good ? 0 : 1);
  }
  char word = 0;
  ASSERT_EQ(::read(back[0], &word, 1), 1);
  std::memset(block.data(), 6, block.size());
  ASSERT_EQ(::write(turn[1], &word, 1), 1);
  int status = 1;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  EXPECT_EQ(status, 0);
  for (const int end : {turn[0], turn[1], back[0], back[1]}) ::close(end);
}

TEST(SharedHeap, is_one_for_the_process_and_another_one_for_its_child) {
  EXPECT_TRUE(in_child([] {
    ::setenv("TUTTI_SHARED_HEAP_BYTES", "16M", 1);
    if (HeapArena::of_process() != nullptr) return false;
    auto heap = SharedHeap::of_process();
    auto again = SharedHeap::of_process();
    if (!heap.ok() || !again.ok() || heap->usage().limit_bytes != 16 * kMiB) return false;
    auto block = heap->allocate(100'000);
    if (!block.ok() || !again->contains(*block)) return false;
    std::memset(*block, 4, 100'000);
    const bool child_was_well = in_child([&] {
      if (HeapArena::of_process() != nullptr) return false;
      auto private_one = heap->allocate(100'000);
      auto own = SharedHeap::of_process();
      if (!own.ok() || !private_one.ok()) return false;
      auto mine = own->allocate(100'000);
      if (!mine.ok() || !own->contains(*mine) || heap->contains(*mine)) return false;
      if (!own->contains(*block) || own->contains(*private_one)) return false;
      for (void* each : {*mine, *private_one, *block}) own->free(each);
      return own->usage().in_use_bytes == 0 && static_cast<std::uint8_t*>(*block)[99'999] == 4;
    });
    return child_was_well && heap->usage().in_use_bytes > 0;
  }));
}

TEST(SharedHeap, refuses_a_limit_that_is_none) {
  EXPECT_TRUE(in_child([] {
    ::setenv("TUTTI_SHARED_HEAP_BYTES", "12", 1);
    const Status status = SharedHeap::of_process().status();
    return status.code() == Code::invalid_argument &&
           status.message().find("TUTTI_SHARED_HEAP_BYTES") != std::string::npos;
  }));
}

}  // namespace
}  // namespace tutti::transport
