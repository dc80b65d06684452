// Trace files that somebody else has written: a few bytes must become neither billions nor undefined.
#include "trace/trace_file.hpp"

#include <gtest/gtest.h>

#include "trace/entry.hpp"
#include "trace/lanes.hpp"

namespace tutti::trace {
namespace {

constexpr std::int64_t kFarAway = std::int64_t{1} << 62;

FileHead head_of(int ranks) {
  FileHead head;
  std::memcpy(head.magic, kMagic, sizeof head.magic);
  head.version = kTraceVersion;
  head.head_bytes = sizeof(FileHead);
  head.entry_bytes = sizeof(TraceEntry);
  head.ranks = ranks;
  return head;
}

Result<RankTrace> parsed(FileHead head, std::vector<TraceEntry> entries = {}) {
  head.check = check_of(head);
  std::string bytes(reinterpret_cast<const char*>(&head), sizeof head);
  for (TraceEntry& entry : entries) {
    entry.check = check_of(entry);
    bytes.append(reinterpret_cast<const char*>(&entry), sizeof entry);
  }
  return parse_trace("file", bytes);
}

TraceEntry step_from(std::int64_t begin, std::int64_t end) {
  TraceEntry entry;
  entry.kind = static_cast<std::uint8_t>(Kind::step);
  entry.begin = begin;
  entry.end = end;
  return entry;
}

TEST(TraceFile, a_job_has_no_more_ranks_than_can_be) {
  EXPECT_TRUE(parsed(head_of(4)).ok());
  EXPECT_EQ(parsed(head_of(std::numeric_limits<int>::max())).status().code(), Code::corrupt);
}

TEST(TraceFile, times_that_no_clock_shows_are_corrupt) {
  EXPECT_TRUE(parsed(head_of(4), {step_from(-5, 1'000'000'000'000)}).ok());
  EXPECT_EQ(parsed(head_of(4), {step_from(0, kFarAway)}).status().code(), Code::corrupt);
  EXPECT_EQ(parsed(head_of(4), {step_from(-kFarAway, 0)}).status().code(), Code::corrupt);
  FileHead head = head_of(4);
  head.time_ns = kFarAway;
  EXPECT_EQ(parsed(head).status().code(), Code::corrupt);
  head = head_of(4);
  head.unix_time_ns = kFarAway;
  EXPECT_EQ(parsed(head).status().code(), Code::corrupt);
}

TEST(TraceFile, a_list_of_ranks_is_no_longer_than_the_job) {
  EXPECT_EQ(ranks_of_text("0-2,8", 9), (std::vector<int>{0, 1, 2, 8}));
  EXPECT_EQ(ranks_of_text("0-2,8", 8), std::nullopt);
  EXPECT_EQ(ranks_of_text("0,0,0", 2), std::nullopt);
  EXPECT_EQ(ranks_of_text("2-1"), std::nullopt);
  std::string bomb = "0-999999";
  for (int i = 0; i < 10'000; ++i) bomb += ",0-999999";
  EXPECT_EQ(ranks_of_text(bomb), std::nullopt);
}

// Each wait by a thread of its own: looking through all threads for each took minutes.
TEST(Lanes, as_many_threads_as_there_are_waits_take_no_time) {
  RankTrace trace;
  constexpr std::uint64_t kWaits = 200'000;
  for (std::uint64_t i = 0; i < kWaits; ++i) {
    TraceEntry wait;
    wait.kind = static_cast<std::uint8_t>(Kind::wait);
    wait.origin = i * 0x9e3779b97f4a7c15U;
    wait.end = 1;
    trace.waits.push_back(wait);
  }
  const auto began = std::chrono::steady_clock::now();
  EXPECT_EQ(lanes_of(trace).size(), kWaits);
  EXPECT_LT(std::chrono::steady_clock::now() - began, std::chrono::seconds(30));
}

}  // namespace
}  // namespace tutti::trace
