// Places for those who have proved nothing, and what is said of those who were turned away.
#include "core/strangers.hpp"

#include <gtest/gtest.h>
#include <unistd.h>

#include <cstdlib>
#include <fstream>
#include <sstream>
#include <utility>
#include <vector>

namespace tutti {
namespace {

TEST(Strangers, the_oldest_who_says_nothing_makes_room) {
  Strangers strangers(3);
  for (Strangers::Id id : {1, 2, 3}) EXPECT_EQ(strangers.admit(id, "a"), std::nullopt);
  strangers.spoke(1);
  EXPECT_EQ(strangers.admit(4, "a"), 2U);
  EXPECT_EQ(strangers.admit(5, "a"), 3U);
  strangers.spoke(4);
  strangers.spoke(5);
  EXPECT_EQ(strangers.admit(6, "a"), 1U);  // all have spoken: the oldest
  EXPECT_EQ(strangers.count(), 3U);
}

TEST(Strangers, a_crowd_of_one_address_presses_upon_itself) {
  Strangers strangers(8);
  (void)strangers.admit(1, "quiet");
  for (Strangers::Id id = 100; id < 10'000; ++id) {
    const auto out = strangers.admit(id, "loud");
    EXPECT_NE(out, 1U);
  }
  EXPECT_EQ(strangers.address_of(1), "quiet");
}

TEST(Strangers, who_says_nothing_from_many_addresses_does_not_drive_out_who_spoke) {
  Strangers strangers(64);
  for (Strangers::Id id = 1; id <= 8; ++id) {
    (void)strangers.admit(id, "10.0.0.1");  // the ranks of one host: its largest crowd
    strangers.spoke(id);
  }
  for (Strangers::Id id = 100; id < 10'000; ++id) {
    const auto out =
        strangers.admit(id, "10.1." + std::to_string(id / 256) + "." + std::to_string(id % 256));
    EXPECT_EQ(out, id < 156 ? std::nullopt : std::optional(id - 56)) << "the oldest goes";
  }
  for (Strangers::Id id = 1; id <= 8; ++id) EXPECT_EQ(strangers.address_of(id), "10.0.0.1");
}

TEST(Strangers, who_is_about_to_speak_is_not_driven_out_by_a_crowd_that_has_spoken) {
  Strangers strangers(8);
  for (Strangers::Id id = 100; id < 107; ++id) {
    (void)strangers.admit(id, "loud");
    strangers.spoke(id);
  }
  (void)strangers.admit(1, "quiet");
  for (Strangers::Id id = 200; id < 300; ++id) {
    EXPECT_NE(strangers.admit(id, "loud"), 1U);
    strangers.spoke(id);
  }
}

TEST(Strangers, addresses_that_one_host_has_by_the_million_count_as_one) {
  for (const auto& [one, other] :
       std::vector<std::pair<std::string, std::string>>{{"127.0.0.1", "127.3.2.1"},
                                                        {"[2001:db8::1]", "2001:db8:0:0:ffff::1"},
                                                        {"::ffff:127.0.0.2", "127.0.0.1"}}) {
    Strangers strangers(4);
    (void)strangers.admit(1, one);
    (void)strangers.admit(2, other);
    (void)strangers.admit(3, "10.0.0.7");
    (void)strangers.admit(4, "2001:db8:0:1::1");
    for (Strangers::Id id = 1; id <= 4; ++id) strangers.spoke(id);
    EXPECT_EQ(strangers.admit(5, "10.0.0.8"), 1U) << one << " and " << other;
  }
}

TEST(Strangers, who_leaves_gives_his_place_back) {
  Strangers strangers(2);
  (void)strangers.admit(1, "a");
  (void)strangers.admit(2, "a");
  strangers.leave(1);
  strangers.leave(1);
  EXPECT_EQ(strangers.admit(3, "a"), std::nullopt);
  strangers.leave(2);
  strangers.leave(3);
  EXPECT_EQ(strangers.least_claim(), std::nullopt);
}

TEST(RefusalLog, tells_the_first_and_counts_the_others) {
  char path[] = "/tmp/tutti-refusals-XXXXXX";
  const int file = mkstemp(path);
  ASSERT_GE(file, 0);
  Config config;
  config.debug = "WARN";
  config.debug_file = path;
  {
    auto log = Log::open(config);
    ASSERT_TRUE(log.ok());
    RefusalLog refusals(*log, Subsystem::net);
    const auto at = [](int ms) { return Nanoseconds(std::chrono::milliseconds(ms)); };
    for (int i = 0; i < 1000; ++i) refusals.note("10.0.0.7", "no hello", at(i));
    refusals.note("10.0.0.8", "another secret", at(7000));
    refusals.note("10.0.0.9", "the last", at(7001));
    EXPECT_EQ(refusals.count(), 1002U);
  }
  std::stringstream text;
  text << std::ifstream(path).rdbuf();
  close(file);
  unlink(path);
  const std::string lines = text.str();
  EXPECT_EQ(std::count(lines.begin(), lines.end(), '\n'), 5) << lines;
  EXPECT_NE(lines.find("10.0.0.8: another secret; and 997 more"), std::string::npos) << lines;
  EXPECT_NE(lines.find("1 more connections, the last from 10.0.0.9"), std::string::npos) << lines;
}

}  // namespace
}  // namespace tutti
