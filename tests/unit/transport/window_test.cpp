#include "transport/window.hpp"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cstddef>
#include <utility>
#include <vector>

namespace tutti::transport {
namespace {

TEST(WindowShape, nothing_in_a_window_overlaps) {
  for (const int lanes : {1, 2, 7, 64}) {
    const WindowShape shape = WindowShape::of(lanes, 128 * 1024);
    std::vector<std::pair<std::size_t, std::size_t>> parts{{0, sizeof(WindowHead)}};
    for (int lane = 0; lane < lanes; ++lane) {
      parts.emplace_back(shape.lane_offset(lane), sizeof(PairLane));
      for (std::size_t block = 0; block < shape.blocks(); ++block)
        parts.emplace_back(shape.block_offset(lane, block), shape.block_bytes(block));
    }
    std::sort(parts.begin(), parts.end());
    for (std::size_t i = 1; i < parts.size(); ++i)
      ASSERT_LE(parts[i - 1].first + parts[i - 1].second, parts[i].first) << lanes << " " << i;
    EXPECT_EQ(parts.back().first + parts.back().second, shape.bytes());
  }
}

// docs/formats/window.md says these numbers.
TEST(WindowShape, offsets_are_those_of_the_format_page) {
  EXPECT_EQ(offsetof(WindowHead, doorbell), 128u);
  EXPECT_EQ(offsetof(WindowHead, departed), 256u);
  EXPECT_EQ(WindowShape::of(2, 65536).lane_offset(0), 4096u);
  EXPECT_EQ(offsetof(PairLane, wants_room), 128u);
  EXPECT_EQ(offsetof(PairLane, generations), 256u);
  EXPECT_EQ(offsetof(PairLane, slots), 2304u);
  EXPECT_EQ(offsetof(Slot, header), 8u);
  EXPECT_EQ(offsetof(Slot, payload), 56u);
}

TEST(WindowShape, many_neighbours_get_fewer_large_blocks_but_never_less_than_two) {
  EXPECT_EQ(WindowShape::of(4, 128 * 1024).large_blocks, kMaxLargeBlocks);
  EXPECT_EQ(WindowShape::of(1000, 1 << 20).large_blocks, 2u);
}

TEST(Window, attach_sees_what_create_made) {
  const WindowShape shape = WindowShape::of(3, 65536);
  auto made = Window::create(2, shape, true);
  ASSERT_TRUE(made.ok()) << made.status().to_string();
  (*made)->lane(1).consumed.store(77);
  auto seen = Window::attach(Descriptor(::dup((*made)->memory())),
                             Descriptor(::dup((*made)->bell())), (*made)->bytes(), 2, 3);
  ASSERT_TRUE(seen.ok()) << seen.status().to_string();
  EXPECT_EQ((*seen)->lane(1).consumed.load(), 77u);
  EXPECT_EQ((*seen)->shape().large_blocks, shape.large_blocks);
}

TEST(Window, attach_refuses_what_is_not_the_window_of_that_rank) {
  auto made = Window::create(2, WindowShape::of(3, 65536), true);
  ASSERT_TRUE(made.ok());
  const auto attach = [&](std::size_t bytes, int rank, std::uint32_t lanes = 3) {
    return Window::attach(Descriptor(::dup((*made)->memory())), Descriptor(::dup((*made)->bell())),
                          bytes, rank, lanes)
        .status()
        .code();
  };
  ASSERT_EQ(attach((*made)->bytes(), 2), Code::ok);
  EXPECT_EQ(attach((*made)->bytes(), 2, 7), Code::corrupt);  // lane 6 would lie behind the end
  EXPECT_EQ(attach((*made)->bytes(), 1), Code::corrupt);
  EXPECT_EQ(attach((*made)->bytes() - 4096, 2), Code::corrupt);
  EXPECT_EQ(attach(100, 2), Code::corrupt);
  (*made)->head().version = 99;
  EXPECT_EQ(attach((*made)->bytes(), 2), Code::mismatch);
  (*made)->head().magic = 0;
  EXPECT_EQ(attach((*made)->bytes(), 2), Code::corrupt);
}

// Ringing writes to it: a pipe that is full would hold the writer for ever.
TEST(Window, attach_refuses_a_bell_that_could_make_one_wait) {
  auto made = Window::create(2, WindowShape::of(3, 65536), true);
  ASSERT_TRUE(made.ok());
  int pipe[2];
  ASSERT_EQ(::pipe2(pipe, O_CLOEXEC), 0);
  const Descriptor reading(pipe[0]);
  const Descriptor writing(pipe[1]);
  const Descriptor blocking(::eventfd(0, EFD_CLOEXEC));
  for (const int bell : {writing.get(), blocking.get(), -1})
    EXPECT_EQ(Window::attach(Descriptor(::dup((*made)->memory())), Descriptor(::dup(bell)),
                             (*made)->bytes(), 2, 3)
                  .status()
                  .code(),
              Code::corrupt);
}

TEST(SharedMemory, cannot_be_shrunk_by_anybody_who_has_it) {
  auto memory = make_shared_memory("test", 8192);
  ASSERT_TRUE(memory.ok());
  EXPECT_NE(::ftruncate(memory->get(), 4096), 0);
  EXPECT_NE(::ftruncate(memory->get(), 16384), 0);
  EXPECT_TRUE(Mapping::shared(memory->get(), 8192, true).ok());
}

TEST(SharedMemory, an_unsealed_file_is_not_mapped) {
  Descriptor file(::memfd_create("test", MFD_CLOEXEC));
  ASSERT_EQ(::ftruncate(file.get(), 8192), 0);
  EXPECT_EQ(Mapping::shared(file.get(), 8192, true).status().code(), Code::corrupt);
}

TEST(SharedMemory, more_than_there_is_room_for_is_out_of_memory) {
  EXPECT_EQ(make_shared_memory("test", std::size_t{1} << 60).status().code(), Code::out_of_memory);
}

}  // namespace
}  // namespace tutti::transport
