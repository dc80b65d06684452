// Counts are 64-bit: more than 2^31 elements in one call. Label slow.
#include <fstream>
#include <string>

#include "support/worlds.hpp"

namespace tutti::test {
namespace {

constexpr std::size_t kCount = (std::size_t{1} << 31) + 5;
constexpr std::size_t kNeededKiB = 10u << 20;  // two ranks of 2 GiB, windows, and room to breathe

std::size_t available_kib() {
  std::ifstream info("/proc/meminfo");
  std::string word;
  std::size_t value = 0;
  while (info >> word)
    if (word == "MemAvailable:" && info >> value) return value;
  return 0;
}

std::uint8_t byte_at(std::size_t index) {
  return static_cast<std::uint8_t>((index * 0x9E3779B97F4A7C15U) >> 56);
}

void try_above_two_to_the_31(Context& here) {
  std::vector<std::uint8_t> values(kCount);
  for (std::size_t i = 0; i < kCount; ++i)
    values[i] = static_cast<std::uint8_t>(byte_at(i) + here.rank);
  Status status = here.group->all_reduce(Buffer::of(values), ReduceOp::sum);
  ASSERT_TRUE(status.ok()) << status.to_string();
  std::size_t wrong = 0;
  for (std::size_t i = 0; i < kCount; ++i)
    wrong += values[i] != static_cast<std::uint8_t>(2 * byte_at(i) + 1);
  EXPECT_EQ(wrong, 0U);

  if (here.rank == 1) values.assign(kCount, 0);
  status = here.group->broadcast(Buffer::of(values), 0);
  ASSERT_TRUE(status.ok()) << status.to_string();
  for (std::size_t i = 0; i < kCount; ++i)
    wrong += values[i] != static_cast<std::uint8_t>(2 * byte_at(i) + 1);
  EXPECT_EQ(wrong, 0U);

  if (here.rank == 0) {
    status = here.group->send(ConstBuffer::of(values), 1);
    EXPECT_TRUE(status.ok()) << status.to_string();
  } else {
    values.assign(kCount, 0);
    const auto received = here.group->recv(Buffer::of(values), 0);
    ASSERT_TRUE(received.ok()) << received.status().to_string();
    EXPECT_EQ(received->bytes, kCount);
    for (std::size_t i = 0; i < kCount; ++i)
      wrong += values[i] != static_cast<std::uint8_t>(2 * byte_at(i) + 1);
    EXPECT_EQ(wrong, 0U);
  }
}

class AboveTwoToThe31 : public WorldTest {};

TEST_P(AboveTwoToThe31, elements_are_reduced_broadcast_and_sent) {
  if (reduced()) GTEST_SKIP() << "too much for a build with sanitizers";
  if (available_kib() < kNeededKiB) GTEST_SKIP() << "needs 10 GiB of memory";
  in_world(try_above_two_to_the_31);
}

INSTANTIATE_TEST_SUITE_P(
    World, AboveTwoToThe31,
    testing::Values(
        World{.kind = WorldKind::threads, .size = 2, .limit = std::chrono::seconds(200)},
        World{.kind = WorldKind::tcp, .size = 2, .limit = std::chrono::seconds(200)}),
    name_of);

}  // namespace
}  // namespace tutti::test
