#include "trace/tracer.hpp"

#include <gtest/gtest.h>
#include <signal.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <thread>

#include "trace/trace_file.hpp"
#include "tutti/types.hpp"

namespace tutti::trace {
namespace {

namespace fs = std::filesystem;

class TracerTest : public ::testing::Test {
 protected:
  void SetUp() override {
    char name[] = "/tmp/tutti-tracer-XXXXXX";
    ASSERT_NE(::mkdtemp(name), nullptr);
    folder_ = name;
  }
  void TearDown() override { fs::remove_all(folder_); }

  std::unique_ptr<Tracer> open(int rank = 2) {
    auto tracer = Tracer::open({folder_ + "/d", rank, 4, "abcd"});
    EXPECT_TRUE(tracer.ok()) << tracer.status().message();
    return tracer.ok() ? *std::move(tracer) : nullptr;
  }
  static void fill(Tracer& tracer, int events) {
    const int members[] = {0, 1, 2, 3};
    tracer.group(5, "dp", members);
    for (int i = 0; i < events; ++i) {
      TraceEntry entry;
      entry.collective = static_cast<std::uint8_t>(Collective::reduce_scatter);
      entry.dtype = static_cast<std::uint8_t>(Dtype::bf16);
      entry.channel = 5;
      entry.sequence = static_cast<std::uint64_t>(i + 1);
      entry.origin = static_cast<std::uint64_t>(100 * i);
      entry.begin = 100 * i + 10;
      entry.end = 100 * i + 90;
      entry.bytes = 4096;
      entry.value = 12.5;
      tracer.collective(entry, "bucket 3");
    }
  }
  static std::string bytes_of(const std::string& path) {
    std::ifstream file(path, std::ios::binary);
    return {std::istreambuf_iterator<char>(file), {}};
  }

  std::string folder_;
};

TEST_F(TracerTest, what_was_noted_is_read_back) {
  auto tracer = open();
  fill(*tracer, 3);
  const std::string long_name(100, 'x');
  tracer->compute(long_name, 5, 9);
  tracer->wait(5, 2, 20, 30);
  tracer->bubble("recv_gradient 0 from stage 1", 20, 25);
  tracer->fold(5, 2, 65536, 21, 22);
  tracer->step(7, 0, 400);
  tracer->counter("loss", 7, 1.25);
  tracer->clock_offset(-42);
  const std::string path = tracer->path();
  EXPECT_EQ(path, folder_ + "/d/rank-2.abcd.trace");
  tracer.reset();
  const auto trace = read_trace(path);
  ASSERT_TRUE(trace.ok()) << trace.status().message();
  EXPECT_EQ(trace->rank, 2);
  EXPECT_EQ(trace->ranks, 4);
  EXPECT_EQ(trace->job, "abcd");
  EXPECT_EQ(trace->pid, ::getpid());
  EXPECT_FALSE(trace->clock.empty());
  EXPECT_FALSE(trace->cut_off);
  ASSERT_EQ(trace->collectives.size(), 3u);
  EXPECT_EQ(trace->collectives[1].begin, 110);
  EXPECT_EQ(trace->text(trace->collectives[1].name), "bucket 3");
  EXPECT_EQ(trace->collectives[1].value, 12.5);
  ASSERT_EQ(trace->compute.size(), 1u);
  EXPECT_EQ(trace->text(trace->compute[0].name), long_name);
  ASSERT_EQ(trace->waits.size(), 1u);
  EXPECT_EQ(trace->waits[0].origin, trace->compute[0].origin) << "the same thread";
  EXPECT_EQ(trace->text(trace->bubbles.at(0).name), "recv_gradient 0 from stage 1");
  EXPECT_EQ(trace->bubbles[0].end, 25);
  EXPECT_EQ(trace->bubbles[0].origin, trace->compute[0].origin);
  EXPECT_EQ(trace->folds.at(0).bytes, 65536u);
  EXPECT_EQ(trace->steps.at(0).sequence, 7u);
  EXPECT_EQ(trace->counters.at(0).value, 1.25);
  EXPECT_EQ(trace->clock_offset, -42);
  EXPECT_EQ(trace->groups.at(5).name, "dp");
  EXPECT_EQ(trace->groups.at(5).ranks, (std::vector<int>{0, 1, 2, 3}));
}

TEST_F(TracerTest, more_than_one_part_of_the_file_is_filled_by_several_threads) {
  auto tracer = open();
  fill(*tracer, 1);
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t)
    threads.emplace_back([&] {
      for (int i = 0; i < 10'000; ++i) tracer->wait(5, 1, i, i + 1);
    });
  for (std::thread& thread : threads) thread.join();
  const std::string path = tracer->path();
  tracer.reset();
  const auto trace = read_trace(path);
  ASSERT_TRUE(trace.ok()) << trace.status().message();
  EXPECT_EQ(trace->waits.size(), 40'000u);
  EXPECT_GT(fs::file_size(path), 2u << 20);
}

TEST_F(TracerTest, a_killed_process_leaves_everything_it_had_noted) {
  const pid_t child = ::fork();
  if (child == 0) {
    auto tracer = Tracer::open({folder_ + "/d", 2, 4, "abcd"});
    if (!tracer.ok()) ::_exit(9);
    fill(**tracer, 20'000);
    ::raise(SIGKILL);
  }
  int status = 0;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  ASSERT_TRUE(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL) << status;
  const auto trace = read_trace(folder_ + "/d/rank-2.abcd.trace");
  ASSERT_TRUE(trace.ok()) << trace.status().message();
  EXPECT_TRUE(trace->cut_off);
  ASSERT_EQ(trace->collectives.size(), 20'000u);
  EXPECT_EQ(trace->collectives.back().sequence, 20'000u);
}

TEST_F(TracerTest, a_child_of_fork_writes_nothing) {
  auto tracer = open();
  fill(*tracer, 1);
  const pid_t child = ::fork();
  if (child == 0) {
    tracer->step(1, 2, 3);
    tracer.reset();  // must not cut the parent's file
    ::_exit(0);
  }
  int status = 0;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  EXPECT_EQ(status, 0);
  tracer->step(2, 3, 4);
  const std::string path = tracer->path();
  tracer.reset();
  const auto trace = read_trace(path);
  ASSERT_TRUE(trace.ok()) << trace.status().message();
  ASSERT_EQ(trace->steps.size(), 1u);
  EXPECT_EQ(trace->steps[0].sequence, 2u);
}

TEST_F(TracerTest, a_second_world_of_a_job_gets_a_file_of_its_own) {
  auto first = open();
  auto second = open();
  EXPECT_NE(first->path(), second->path());
  const std::string path = second->path();
  second.reset();
  EXPECT_EQ(read_trace(path)->job, "abcd-2");
}

TEST_F(TracerTest, a_file_that_was_cut_anywhere_is_read_up_to_there) {
  auto tracer = open();
  fill(*tracer, 10);
  const std::string path = tracer->path();
  tracer.reset();
  const std::string whole = bytes_of(path);
  std::size_t before = 0;
  for (std::size_t size = sizeof(FileHead); size <= whole.size(); size += 13) {
    const auto trace = parse_trace("cut", whole.substr(0, size));
    // Only a text or group without its end, or a collective before its group, may be refused.
    if (!trace.ok()) {
      EXPECT_LT(size, sizeof(FileHead) + 8 * sizeof(TraceEntry)) << trace.status().message();
      continue;
    }
    EXPECT_GE(trace->collectives.size(), before);
    before = trace->collectives.size();
    EXPECT_EQ(trace->cut_off, (size - sizeof(FileHead)) % sizeof(TraceEntry) != 0);
  }
  EXPECT_GE(before, 9u);
  for (std::size_t size : {std::size_t{1}, sizeof(FileHead) - 1})
    EXPECT_EQ(parse_trace("cut", whole.substr(0, size)).status().code(), Code::corrupt);
}

TEST_F(TracerTest, every_damaged_byte_is_found) {
  auto tracer = open();
  fill(*tracer, 3);
  const std::string path = tracer->path();
  tracer.reset();
  const std::string whole = bytes_of(path);
  for (std::size_t at = 0; at < whole.size(); ++at) {
    std::string damaged = whole;
    damaged[at] = static_cast<char>(damaged[at] ^ 0x10);
    const auto trace = parse_trace("the file", damaged);
    ASSERT_FALSE(trace.ok()) << "byte " << at;
    EXPECT_NE(trace.status().message().find("the file"), std::string::npos);
  }
}

TEST_F(TracerTest, a_folder_that_cannot_be_made_is_named) {
  const auto tracer = Tracer::open({"/proc/nowhere/d", 0, 1, "x"});
  ASSERT_FALSE(tracer.ok());
  EXPECT_EQ(tracer.status().code(), Code::io);
  EXPECT_NE(tracer.status().message().find("/proc/nowhere/d"), std::string::npos);
}

TEST(text_of_ranks, runs_are_written_short_and_read_back) {
  const int ranks[] = {0, 1, 2, 3, 8, 5, 6};
  EXPECT_EQ(text_of_ranks(ranks), "0-3,8,5-6");
  EXPECT_EQ(ranks_of_text("0-3,8,5-6"), (std::vector<int>{0, 1, 2, 3, 8, 5, 6}));
  EXPECT_EQ(ranks_of_text(""), std::vector<int>());
  for (const char* wrong : {"1-", "x", "1,", "3-1", "1,,2", "-1"})
    EXPECT_EQ(ranks_of_text(wrong), std::nullopt) << wrong;
}

}  // namespace
}  // namespace tutti::trace
