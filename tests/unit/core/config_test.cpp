#include "tutti/config.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <set>

namespace tutti {
namespace {

using testing::HasSubstr;
using testing::Not;

// Sets variables for one test, and clears all of ours around it.
class ConfigTest : public testing::Test {
 protected:
  ConfigTest() { clear(); }
  ~ConfigTest() override { clear(); }
  static void clear() {
    for (const ConfigVariable& variable : config_variables()) ::unsetenv(variable.name.c_str());
  }
  static Result<Config> with(const char* name, const char* value) {
    ::setenv(name, value, 1);
    return Config::from_environment();
  }
  static void expect_refused(const char* name, const char* value, const char* culprit) {
    auto config = with(name, value);
    ASSERT_FALSE(config.ok()) << name << "=" << value;
    EXPECT_EQ(config.status().code(), Code::invalid_argument);
    EXPECT_THAT(config.status().message(), HasSubstr(name));
    EXPECT_THAT(config.status().message(), HasSubstr(culprit));
    ::unsetenv(name);
  }
};

TEST_F(ConfigTest, an_empty_environment_gives_the_defaults) {
  auto config = Config::from_environment();
  ASSERT_TRUE(config.ok());
  EXPECT_EQ(config->transport, "auto");
  EXPECT_EQ(config->timeout, std::chrono::seconds(300));
  for (Algorithm algorithm : config->algorithm) EXPECT_EQ(algorithm, Algorithm::automatic);
}

TEST_F(ConfigTest, algorithms_are_forced_per_collective) {
  auto config = with("TUTTI_ALGORITHM", "all_reduce:ring, broadcast:binomial_tree");
  ASSERT_TRUE(config.ok()) << config.status().to_string();
  EXPECT_EQ(config->algorithm[static_cast<int>(Collective::all_reduce)], Algorithm::ring);
  EXPECT_EQ(config->algorithm[static_cast<int>(Collective::broadcast)], Algorithm::binomial_tree);
  EXPECT_EQ(config->algorithm[static_cast<int>(Collective::scan)], Algorithm::automatic);
}

TEST_F(ConfigTest, a_wrong_algorithm_or_collective_is_named_with_the_right_ones) {
  expect_refused("TUTTI_ALGORITHM", "all_reduce:rign", "'rign'");
  expect_refused("TUTTI_ALGORITHM", "all_reduce:rign", "halving_doubling");
  expect_refused("TUTTI_ALGORITHM", "allreduce:ring", "'allreduce'");
  expect_refused("TUTTI_ALGORITHM", "allreduce:ring", "reduce_scatter");
  expect_refused("TUTTI_ALGORITHM", "ring", "collective:algorithm");
}

TEST_F(ConfigTest, cores_of_the_progress_thread_are_listed_singly_or_as_ranges) {
  auto config = with("TUTTI_PROGRESS_CPUS", "3,8-10");
  ASSERT_TRUE(config.ok()) << config.status().to_string();
  EXPECT_EQ(config->progress_cpus, (std::vector<int>{3, 8, 9, 10}));
  expect_refused("TUTTI_PROGRESS_CPUS", "3,x", "'x'");
  expect_refused("TUTTI_PROGRESS_CPUS", "7-3", "'7-3'");
  expect_refused("TUTTI_PROGRESS_CPUS", "3,", "''");
}

TEST_F(ConfigTest, the_share_of_a_core_is_a_share) {
  auto config = with("TUTTI_MAX_CORE_SHARE", "0.25");
  ASSERT_TRUE(config.ok()) << config.status().to_string();
  EXPECT_DOUBLE_EQ(config->max_core_share, 0.25);
  for (const char* wrong : {"0", "1.5", "nan", "half"})
    expect_refused("TUTTI_MAX_CORE_SHARE", wrong, wrong);
}

TEST_F(ConfigTest, costs_are_measured_once_unless_told_otherwise) {
  auto config = Config::from_environment();
  ASSERT_TRUE(config.ok());
  EXPECT_EQ(config->tuning, "auto");
  EXPECT_EQ(config->cache_dir, "");
  config = with("TUTTI_TUNING", "fixed");
  ASSERT_TRUE(config.ok());
  EXPECT_EQ(config->tuning, "fixed");
  config = with("TUTTI_CACHE_DIR", "/some/where");
  ASSERT_TRUE(config.ok());
  EXPECT_EQ(config->cache_dir, "/some/where");
}

TEST_F(ConfigTest, transports_are_checked) {
  EXPECT_EQ(with("TUTTI_TRANSPORT", "shm, tcp")->transport, "shm,tcp");
  expect_refused("TUTTI_TRANSPORT", "rdma", "'rdma'");
  expect_refused("TUTTI_TRANSPORT", "rdma", "inproc, shm, ofi, tcp");
  expect_refused("TUTTI_TRANSPORT", "auto,tcp", "alone");
}

TEST_F(ConfigTest, times_and_sizes_have_units) {
  EXPECT_EQ(with("TUTTI_TIMEOUT", "2.5")->timeout, std::chrono::milliseconds(2500));
  EXPECT_EQ(with("TUTTI_TIMEOUT", "500ms")->timeout, std::chrono::milliseconds(500));
  EXPECT_EQ(with("TUTTI_JOIN_TIMEOUT", "5m")->join_timeout, std::chrono::minutes(5));
  EXPECT_EQ(with("TUTTI_SEGMENT_BYTES", "64K")->segment_bytes, 65536u);
  EXPECT_EQ(with("TUTTI_SEGMENT_BYTES", "1MiB")->segment_bytes, 1u << 20);
  EXPECT_EQ(with("TUTTI_CUDA_PUSH", "0")->cuda_push, 0u);
  EXPECT_EQ(with("TUTTI_CUDA_PUSH", "1000G")->cuda_push, std::size_t{1000} << 30);
  EXPECT_EQ(with("TUTTI_SPIN", "-1")->spin, -1);
  EXPECT_EQ(with("TUTTI_STREAMS", "4")->streams, 4);
  EXPECT_EQ(Config().streams, 1);
  EXPECT_EQ(with("TUTTI_TCP_CONGESTION", "reno")->tcp_congestion, "reno");
  EXPECT_FALSE(with("TUTTI_TCP_CHECKSUM", "0")->tcp_checksum);
  EXPECT_FALSE(with("TUTTI_TCP_EXPRESS", "0")->tcp_express);
  EXPECT_EQ(with("TUTTI_BUSY_POLL", "50")->busy_poll, 50);
  EXPECT_FALSE(with("TUTTI_PROGRESS_THREAD", "off")->progress_thread);
}

TEST_F(ConfigTest, what_cannot_be_read_is_quoted) {
  expect_refused("TUTTI_TIMEOUT", "soon", "'soon'");
  expect_refused("TUTTI_TIMEOUT", "5 parsecs", "'5 parsecs'");
  expect_refused("TUTTI_TIMEOUT", "-3", "'-3'");
  expect_refused("TUTTI_TIMEOUT", "0", "more than zero");
  expect_refused("TUTTI_TIMEOUT", "nan", "'nan'");
  expect_refused("TUTTI_SEGMENT_BYTES", "12Q", "'12Q'");
  expect_refused("TUTTI_SEGMENT_BYTES", "1", "outside");
  expect_refused("TUTTI_STREAMS", "0", "outside");
  expect_refused("TUTTI_STREAMS", "9", "outside");
  expect_refused("TUTTI_STREAMS", "two", "two");
  expect_refused("TUTTI_BUSY_POLL", "-1", "outside");
  expect_refused("TUTTI_RECORDER_SIZE", "0", "outside");
  expect_refused("TUTTI_SPIN", "many", "'many'");
  expect_refused("TUTTI_PROGRESS_THREAD", "maybe", "'maybe'");
  expect_refused("TUTTI_DEBUG", "LOUD", "TRACE");
  expect_refused("TUTTI_DEBUG_SUBSYS", "INIT,NETT", "'NETT'");
}

TEST_F(ConfigTest, variables_that_there_are_not_are_named_with_the_nearest) {
  ::setenv("TUTTI_TIMEOTU", "3", 1);
  ::setenv("TUTTI_FOO", "3", 1);
  ::setenv("TUTTI_TEST_OWN", "3", 1);
  std::string all;
  for (const std::string& sentence : unknown_variables()) all += sentence + "\n";
  EXPECT_THAT(
      all, HasSubstr(
               "TUTTI_TIMEOTU is passed over: there is no such variable; is TUTTI_TIMEOUT meant?"));
  EXPECT_THAT(all, HasSubstr("no such variable; tutti info lists"));
  EXPECT_THAT(all, Not(HasSubstr("TUTTI_TEST_OWN")));
  for (const char* name : {"TUTTI_TIMEOTU", "TUTTI_FOO", "TUTTI_TEST_OWN"}) ::unsetenv(name);
}

TEST_F(ConfigTest, set_to_nothing_means_not_set) {
  EXPECT_EQ(with("TUTTI_TIMEOUT", "")->timeout, std::chrono::seconds(300));
}

TEST_F(ConfigTest, the_table_names_every_variable_once_with_a_meaning_and_its_value) {
  ::setenv("TUTTI_TIMEOUT", "7", 1);
  std::set<std::string> names;
  for (const ConfigVariable& variable : config_variables()) {
    EXPECT_TRUE(names.insert(variable.name).second) << variable.name << " stands there twice";
    EXPECT_TRUE(variable.name.starts_with("TUTTI_"));
    EXPECT_FALSE(variable.meaning.empty()) << variable.name;
    if (variable.name == "TUTTI_TIMEOUT") {
      EXPECT_EQ(variable.default_value, "300");
      EXPECT_EQ(variable.value, "7");
    }
  }
  for (const char* name : {"TUTTI_RANK", "TUTTI_STORE", "TUTTI_SECRET_FD", "TUTTI_BOARD_FD"})
    EXPECT_TRUE(names.contains(name)) << name;
}

TEST_F(ConfigTest, every_default_reads_back_as_itself) {
  for (const ConfigVariable& variable : config_variables())
    ::setenv(variable.name.c_str(), variable.default_value.c_str(), 1);
  auto config = Config::from_environment();
  ASSERT_TRUE(config.ok()) << config.status().to_string();
  EXPECT_EQ(config->timeout, Config().timeout);
  EXPECT_EQ(config->segment_bytes, Config().segment_bytes);
  EXPECT_EQ(config->spin, Config().spin);
  EXPECT_EQ(config->debug, Config().debug);
}

}  // namespace
}  // namespace tutti
