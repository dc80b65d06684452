#include "trace/recorder.hpp"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cstring>
#include <thread>

#include "core/process_hooks.hpp"
#include "support/parsed_json.hpp"
#include "tutti/status.hpp"
#include "tutti/types.hpp"

namespace tutti::trace {
namespace {

Record numbered(std::uint64_t number) {
  Record record;
  record.event = Event::started;
  record.collective = static_cast<std::uint8_t>(Collective::all_reduce);
  record.sequence = number;
  record.bytes = number * 3 + 1;
  record.peer = static_cast<std::int32_t>(number % 1000);
  std::strcpy(record.label, "world");
  return record;
}

bool is_whole(const Record& record) {
  return record.bytes == record.sequence * 3 + 1 &&
         record.peer == static_cast<std::int32_t>(record.sequence % 1000) &&
         std::strcmp(record.label, "world") == 0;
}

std::string read_file(int file) {
  std::string text(static_cast<std::size_t>(::lseek(file, 0, SEEK_END)), '\0');
  EXPECT_EQ(::pread(file, text.data(), text.size(), 0), static_cast<ssize_t>(text.size()));
  return text;
}

TEST(recorder, snapshot_is_oldest_first_with_times_of_its_clock) {
  VirtualClock clock;
  Recorder recorder(16, clock);
  for (std::uint64_t i = 0; i < 5; ++i) {
    clock.advance(Nanoseconds(10));
    recorder.note(numbered(i));
  }
  const auto records = recorder.snapshot();
  ASSERT_EQ(records.size(), 5u);
  for (std::uint64_t i = 0; i < 5; ++i) {
    EXPECT_EQ(records[i].sequence, i);
    EXPECT_EQ(records[i].time_ns, static_cast<std::int64_t>(10 * (i + 1)));
  }
}

TEST(recorder, keeps_the_last_records_when_the_ring_wraps) {
  VirtualClock clock;
  Recorder recorder(10, clock);  // rounded up to 16
  for (std::uint64_t i = 0; i < 1000; ++i) recorder.note(numbered(i));
  const auto records = recorder.snapshot();
  ASSERT_EQ(records.size(), 16u);
  for (std::uint64_t i = 0; i < 16; ++i) EXPECT_EQ(records[i].sequence, 984 + i);
}

TEST(recorder, size_zero_still_records) {
  VirtualClock clock;
  Recorder recorder(0, clock);
  recorder.note(numbered(7));
  ASSERT_EQ(recorder.snapshot().size(), 1u);
}

TEST(recorder, concurrent_notes_are_never_seen_torn) {
  Recorder recorder(64, steady_clock());
  // The writers go on until the reader has seen enough: on a busy machine it may be asleep for as
  // long as a fixed number of notes would take.
  std::atomic<bool> enough{false};
  std::vector<std::thread> writers;
  for (std::uint64_t w = 0; w < 4; ++w)
    writers.emplace_back([&, w] {
      for (std::uint64_t i = 0; i < 1000 || !enough; ++i)
        recorder.note(numbered(w * 1000000000 + i));
    });
  bool whole = true;
  for (std::size_t seen = 0; seen < 1000;)
    for (const Record& record : recorder.snapshot()) {
      whole = whole && is_whole(record);
      ++seen;
    }
  enough = true;
  for (auto& writer : writers) writer.join();
  EXPECT_TRUE(whole);
  // Every thread wrote far more than the ring holds; at rest nearly all of it is there.
  EXPECT_GT(recorder.snapshot().size(), 32u);
}

TEST(recorder, json_dump_parses_whatever_the_label_holds) {
  VirtualClock clock;
  clock.advance(Nanoseconds(77));
  Recorder recorder(8, clock);
  Record record = numbered(42);
  record.event = Event::failed;
  record.code = static_cast<std::uint8_t>(Code::peer_lost);
  std::memcpy(record.label, "a\"b\\c\n\x01\xff and more", 16);  // not terminated, not UTF-8
  recorder.note(record);
  Record p2p;
  p2p.collective = kPointToPoint;
  p2p.dtype = 200;  // out of range
  p2p.code = 200;
  recorder.note(p2p);

  const Json dump = parsed(recorder.dump_json(3, "rank 1 \"died\""));
  EXPECT_EQ(dump["tutti_recorder"], 1);
  EXPECT_EQ(dump["rank"], 3);
  EXPECT_EQ(dump["pid"], ::getpid());
  EXPECT_EQ(dump["reason"], "rank 1 \"died\"");
  EXPECT_EQ(dump["noted"], 2);
  ASSERT_EQ(dump["records"].size(), 2u);
  EXPECT_EQ(dump["records"][0]["event"], "failed");
  EXPECT_EQ(dump["records"][0]["collective"], "all_reduce");
  EXPECT_EQ(dump["records"][0]["sequence"], 42);
  EXPECT_EQ(dump["records"][0]["code"], "peer_lost");
  EXPECT_EQ(dump["records"][0]["time_ns"], 77);
  EXPECT_EQ(dump["records"][1]["collective"], "point_to_point");
}

TEST(recorder, a_dump_has_the_labels_that_were_given_last) {
  VirtualClock clock;
  Recorder recorder(8, clock);
  EXPECT_EQ(parsed(recorder.dump_json(0, "")).find("labels"), nullptr);
  recorder.set_labels({"dp 0", "dp 1"});
  recorder.set_labels({"tp 0", "tp 1"});
  const Json dump = parsed(recorder.dump_json(0, ""));
  ASSERT_EQ(dump["labels"].size(), 2u);
  EXPECT_EQ(dump["labels"][1], "tp 1");
}

TEST(recorder, text_dump_names_the_operation_one_a_line) {
  VirtualClock clock;
  Recorder recorder(8, clock);
  for (std::uint64_t i = 0; i < 5; ++i) recorder.note(numbered(i));
  const std::string text = recorder.dump_text(2);
  EXPECT_EQ(std::count(text.begin(), text.end(), '\n'), 2);
  EXPECT_THAT(text, testing::HasSubstr("all_reduce #3"));
  EXPECT_THAT(text, testing::HasSubstr("all_reduce #4"));
  EXPECT_THAT(text, testing::HasSubstr("'world'"));
}

struct SignalDump {
  const Recorder& recorder;
  int file;
  static void run(void* self) noexcept {
    const auto* dump = static_cast<const SignalDump*>(self);
    (void)dump->recorder.dump_to(dump->file, 5, "signal");
  }
};

TEST(recorder, is_dumped_from_a_signal_handler_while_threads_note) {
  Recorder recorder(4096, steady_clock());
  const int file = ::memfd_create("dump", MFD_CLOEXEC);
  SignalDump dump{recorder, file};
  const Hook hook = Hook::on_dump(&SignalDump::run, &dump);
  for (std::uint64_t i = 0; i < 4096; ++i) recorder.note(numbered(i));
  std::atomic<bool> stop{false};
  std::thread writer([&] {
    for (std::uint64_t i = 0; !stop; ++i) recorder.note(numbered(i));
  });
  ASSERT_EQ(::raise(SIGUSR1), 0);
  stop = true;
  writer.join();

  const Json dumped = parsed(read_file(file));
  EXPECT_EQ(dumped["rank"], 5);
  EXPECT_EQ(dumped["reason"], "signal");
  EXPECT_GT(dumped["records"].size(), 0u);
  ::close(file);
}

TEST(recorder, a_group_that_rarely_calls_keeps_its_records_beside_one_that_always_does) {
  Recorder recorder(256, steady_clock());
  Tickets rare;
  Tickets often;
  Record record;
  record.channel = 1;
  recorder.note(rare, record);
  for (int turn = 0; turn < 10; ++turn) {
    record.channel = 2;
    for (int i = 0; i < 1000; ++i) recorder.note(often, record);
    record.channel = 1;
    recorder.note(rare, record);
    const auto records = recorder.snapshot();
    EXPECT_EQ(std::count_if(records.begin(), records.end(),
                            [](const Record& each) { return each.channel == 1; }),
              1)
        << "turn " << turn;
  }
}

}  // namespace
}  // namespace tutti::trace
