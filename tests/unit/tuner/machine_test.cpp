// A machine is a value: what is written reads back, and what cannot be one is refused by name.
#include "tuner/machine.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>

#include "tuner/choose.hpp"

namespace tutti::tuner {
namespace {

using testing::HasSubstr;

Machine some_machine() {
  Machine machine = built_in_machine();
  machine.name = "a \"quoted\" name\nin two lines";
  machine.fingerprint = "0123456789abcdef";
  machine.cores = 3;
  machine.memory.measured = true;
  machine.memory.latency_s = 1.0 / 3 * 1e-6;
  machine.pull = {};
  return machine;
}

// The JSON of some_machine with one piece of it replaced.
std::string with(const std::string& what, const std::string& by) {
  std::string json = to_json(some_machine());
  const auto at = json.find(what);
  EXPECT_NE(at, std::string::npos) << what;
  return json.replace(at, what.size(), by);
}

void expect_refused(const std::string& json, const std::string& why) {
  const auto machine = parse_machine(json);
  ASSERT_FALSE(machine.ok()) << "accepted, but should say: " << why;
  EXPECT_THAT(machine.status().message(), HasSubstr(why));
}

TEST(Machine, what_is_written_reads_back_equal_to_the_bit) {
  for (const Machine& machine : {built_in_machine(), some_machine()}) {
    const auto again = parse_machine(to_json(machine));
    ASSERT_TRUE(again.ok()) << again.status().to_string();
    EXPECT_EQ(*again, machine);
    EXPECT_EQ(to_json(*again), to_json(machine));
  }
}

TEST(Machine, every_field_that_is_wrong_is_named) {
  expect_refused(with("\"tutti tuning\"", "\"tutti plan\""), "'format' is 'tutti plan'");
  expect_refused(with("\"version\": 2", "\"version\": 1"), "'version' is 1; this build reads 2");
  expect_refused(with("\"cores\": 3,", ""), "'cores' is missing");
  expect_refused(with("\"cores\": 3", "\"cores\": 2.5"), "'cores' is not a whole number");
  expect_refused(with("\"cores\": 3", "\"cores\": -1"), "'cores' is -1");
  expect_refused(with("\"cores\": 3", "\"cores\": \"3\""), "'cores' is not a number");
  expect_refused(with("\"cores\": 3", "\"cores\": 3, \"speed\": 1"), "'speed' is no field");
  expect_refused(with("\"measured\": true", "\"measured\": 1"),
                 "'links.memory.measured' is not true or false");
  expect_refused(with("\"message_s\": ", "\"message_s\": -"), "'links.memory.message_s'");
  expect_refused(with("\"message_s\"", "\"mesage_s\""), "'links.memory.mesage_s' is no field");
  expect_refused(with("\"copy\": [[", "\"copy\": [[0, 0], ["), "'copy' : point 0");
  expect_refused(with("\"fold\": [[", "\"fold\": [7, ["),
                 "'fold' has a point 0 that is not a pair");
  expect_refused(with("\"meet\": [[2,", "\"meet\": [[200,"), "'meet' : point 1 is not larger");
  expect_refused("[]", "not an object");
}

TEST(Machine, text_that_is_no_json_is_refused_with_its_line) {
  expect_refused("", "line 1: The document is empty");
  expect_refused("{\n\"format\": \"tutti tuning\",\n}", "line 3: Missing a name");
  expect_refused(to_json(some_machine()) + "x", "must not be followed");
  expect_refused(with("\"cores\": 3", "\"cores\": 3, \"cores\": 3"), "'cores' is there twice");
  const std::string whole = to_json(some_machine());
  for (std::size_t length = 0; length + 2 < whole.size(); ++length)
    ASSERT_FALSE(parse_machine(whole.substr(0, length)).ok()) << length;
}

TEST(Machine, ranks_beyond_the_cores_crowd_and_unknown_cores_do_not) {
  Machine machine = built_in_machine();
  EXPECT_EQ(machine.crowding(64), 1);
  machine.cores = 4;
  EXPECT_EQ(machine.crowding(4), 1);
  EXPECT_EQ(machine.crowding(8), 2);
}

TEST(Machine, ranks_that_were_sent_the_table_choose_as_its_sender_does) {
  const Machine mine = some_machine();
  const Machine theirs = *parse_machine(to_json(mine));
  for (int c = 0; c < kCollectives; ++c)
    for (const int ranks : {2, 5, 16, 24})
      for (const int per_host : {1, 2, ranks})
        for (std::size_t bytes = 4; bytes <= 64 << 20; bytes *= 16) {
          std::vector<int> host_of;
          for (int rank = 0; rank < ranks; ++rank) host_of.push_back(rank / per_host);
          const CallFacts facts{static_cast<Collective>(c), bytes, ranks, host_of};
          const auto here = candidates(facts, mine);
          const auto there = candidates(facts, theirs);
          ASSERT_EQ(here.size(), there.size());
          for (std::size_t i = 0; i < here.size(); ++i) {
            ASSERT_EQ(here[i].algorithm, there[i].algorithm);
            ASSERT_EQ(here[i].shots, there[i].shots);
            ASSERT_EQ(here[i].predicted, there[i].predicted);
          }
        }
}

TEST(Machine, is_described_with_its_curves) {
  const std::string text = describe(some_machine());
  EXPECT_THAT(text, HasSubstr("3 cores"));
  EXPECT_THAT(text, HasSubstr("fingerprint 0123456789abcdef"));
  EXPECT_THAT(text, HasSubstr("pull   GB/s  not known"));
}

}  // namespace
}  // namespace tutti::tuner
