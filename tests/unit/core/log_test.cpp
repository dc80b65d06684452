#include "core/log.hpp"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <thread>

namespace tutti {
namespace {

class LogTest : public testing::Test {
 protected:
  LogTest() {
    std::string pattern = testing::TempDir() + "tutti-log-XXXXXX";
    folder_ = ::mkdtemp(pattern.data());
    config_.debug_file = folder_ + "/log.%p";
  }
  ~LogTest() override { std::filesystem::remove_all(folder_); }

  std::string written() const {
    std::ifstream file(folder_ + "/log." + std::to_string(::getpid()));
    std::stringstream text;
    text << file.rdbuf();
    return text.str();
  }

  std::string folder_;
  Config config_;
};

TEST_F(LogTest, a_line_says_where_who_and_how_important) {
  config_.debug = "INFO";
  auto log = Log::open(config_);
  ASSERT_TRUE(log.ok()) << log.status().to_string();
  log->for_rank(3).info(Subsystem::net, "linked to {}", 2);
  log->warn(Subsystem::init, "odd");
  EXPECT_THAT(written(), testing::MatchesRegex("tutti [^ :]+:[0-9]+ rank 3 INFO NET: linked to 2\n"
                                               "tutti [^ :]+:[0-9]+ WARN INIT: odd\n"));
}

TEST_F(LogTest, each_line_of_a_block_has_a_head) {
  config_.debug = "INFO";
  Log::open(config_)->info(Subsystem::init, "first\n  second");
  const std::string text = written();
  EXPECT_EQ(std::count(text.begin(), text.end(), '\n'), 2);
  EXPECT_THAT(text, testing::HasSubstr("INIT:   second\n"));
}

TEST_F(LogTest, levels_and_subsystems_choose) {
  config_.debug = "info";
  config_.debug_subsystems = "NET,shm";
  auto log = Log::open(config_);
  ASSERT_TRUE(log.ok());
  EXPECT_TRUE(log->enabled(Level::info, Subsystem::net));
  EXPECT_TRUE(log->enabled(Level::warn, Subsystem::shm));
  EXPECT_FALSE(log->enabled(Level::trace, Subsystem::net));
  EXPECT_FALSE(log->enabled(Level::info, Subsystem::init));
  log->trace(Subsystem::net, "too much");
  log->info(Subsystem::init, "not asked for");
  EXPECT_EQ(written(), "");
}

TEST_F(LogTest, off_and_default_logs_say_nothing) {
  config_.debug = "off";
  Log::open(config_)->warn(Subsystem::init, "x");
  Log().warn(Subsystem::init, "x");
  EXPECT_FALSE(std::filesystem::exists(folder_ + "/log." + std::to_string(::getpid())));
}

TEST_F(LogTest, a_file_that_cannot_be_opened_is_named) {
  config_.debug_file = folder_ + "/no/such/folder";
  auto log = Log::open(config_);
  ASSERT_FALSE(log.ok());
  EXPECT_EQ(log.status().code(), Code::io);
  EXPECT_THAT(log.status().message(), testing::HasSubstr("TUTTI_DEBUG_FILE"));
}

TEST_F(LogTest, lines_of_many_threads_do_not_mix) {
  config_.debug = "INFO";
  auto log = Log::open(config_);
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t)
    threads.emplace_back([mine = log->for_rank(t), t] {
      for (int i = 0; i < 200; ++i) mine.info(Subsystem::coll, "{}", std::string(100, 'a' + t));
    });
  for (auto& thread : threads) thread.join();
  std::istringstream text(written());
  int lines = 0;
  for (std::string line; std::getline(text, line); ++lines) {
    const int rank = line[line.find("rank ") + 5] - '0';
    ASSERT_THAT(line, testing::EndsWith("COLL: " + std::string(100, 'a' + rank)));
  }
  EXPECT_EQ(lines, 800);
}

TEST_F(LogTest, is_for_its_owner_alone) {
  config_.debug = "WARN";
  ASSERT_TRUE(Log::open(config_).ok());
  const auto mode =
      std::filesystem::status(folder_ + "/log." + std::to_string(::getpid())).permissions();
  EXPECT_EQ(mode & std::filesystem::perms::others_all, std::filesystem::perms::none);
}

TEST_F(LogTest, a_reader_that_stops_is_not_waited_for_and_told_what_it_missed) {
  config_.debug_file = folder_ + "/pipe";
  config_.debug = "WARN";
  ASSERT_EQ(::mkfifo(config_.debug_file.c_str(), 0600), 0);
  EXPECT_THAT(Log::open(config_).status().message(), testing::HasSubstr("nobody reads"));
  const int reader = ::open(config_.debug_file.c_str(), O_RDONLY | O_NONBLOCK);
  auto log = Log::open(config_);
  ASSERT_TRUE(log.ok()) << log.status().to_string();
  const auto began = std::chrono::steady_clock::now();
  for (int i = 0; i < 2000; ++i) log->warn(Subsystem::net, "{}", std::string(1000, 'x'));
  EXPECT_LT(std::chrono::steady_clock::now() - began, std::chrono::seconds(10));
  std::string text(1 << 20, '\0');
  EXPECT_GT(::read(reader, text.data(), text.size()), 0);
  log->warn(Subsystem::net, "last");
  text.resize(static_cast<std::size_t>(::read(reader, text.data(), text.size())));
  EXPECT_THAT(text,
              testing::MatchesRegex("tutti: [0-9]+ lines of the log were dropped here\n.*last\n"));
  ::close(reader);
}

}  // namespace
}  // namespace tutti
