// What is measured here is not known beforehand, but it has to be a machine.
#include "group/calibrate.hpp"

#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include "group/calibrate_links.hpp"
#include "group/machine_facts.hpp"
#include "group/tuning_cache.hpp"

namespace tutti::group {
namespace {

using std::chrono::milliseconds;

Environment only(std::string name, std::string value) {
  return [=](const std::string& asked) -> std::optional<std::string> {
    if (asked == name) return value;
    return std::nullopt;
  };
}

TEST(Calibrate, the_machine_it_finds_can_be_written_and_read) {
  const auto cpus = CpuSet::of_this_process().list();
  ASSERT_FALSE(cpus.empty());
  const tuner::Machine machine = measure_machine(cpus, Budget(milliseconds(700)));
  EXPECT_EQ(machine.cores, static_cast<int>(cpus.size()));
  // Slower than a disk or faster than any cache: not measured at all.
  for (const tuner::Curve* curve : {&machine.copy, &machine.fold}) {
    EXPECT_GT(curve->seconds(1 << 20), (1 << 20) / 1e12);
    EXPECT_LT(curve->seconds(1 << 20), (1 << 20) / 1e7);
  }
  EXPECT_GT(machine.meet_seconds(2), 1e-9);
  const auto again = tuner::parse_machine(tuner::to_json(machine));
  ASSERT_TRUE(again.ok()) << again.status().to_string();
  EXPECT_EQ(*again, machine);
}

TEST(Calibrate, without_time_the_built_in_figures_stay) {
  const tuner::Machine machine = measure_machine({0}, Budget(milliseconds(0)));
  EXPECT_EQ(machine.copy, tuner::built_in_machine().copy);
  EXPECT_EQ(machine.fold, tuner::built_in_machine().fold);
  EXPECT_EQ(machine.pull, tuner::built_in_machine().pull);
}

TEST(Calibrate, more_ranks_than_processors_meet_too) {
  // On a busy core six threads may not meet once in the time that a measurement has.
  double seconds = 0;
  for (int tries = 0; tries < 100 && seconds == 0; ++tries)
    seconds = measure_meeting(6, {CpuSet::of_this_process().list()[0]}, Budget(milliseconds(500)));
  EXPECT_GT(seconds, 0);
}

TEST(Calibrate, bytes_by_tcp_take_time_of_a_core) {
  const double byte_s = measure_tcp_byte(Budget(milliseconds(50)));
  EXPECT_GT(byte_s, 1e-12);
  EXPECT_LT(byte_s, 1e-6);
}

TEST(Calibrate, disturbances_are_dropped) {
  EXPECT_EQ(undisturbed({9, 1, 5, 2, 7, 8, 6, 3}), (std::vector<double>{1, 2}));
  EXPECT_EQ(undisturbed({4}), (std::vector<double>{4}));
  EXPECT_TRUE(undisturbed({}).empty());
  EXPECT_EQ(typical({}), 0);
}

TEST(ProbePeers, are_the_nearest_of_each_kind) {
  EXPECT_EQ(ProbePeers::find({0, 0, 1, 1}).memory, 1);
  EXPECT_EQ(ProbePeers::find({0, 0, 1, 1}).tcp, 2);
  EXPECT_EQ(ProbePeers::find({0, 1, 2}).memory, -1);
  EXPECT_EQ(ProbePeers::find({0, 0}).tcp, -1);
}

// A neighbour that takes half of a wire for a while does not make it another one.
TEST(StillLike, half_and_twice_are_the_same_network_and_a_third_is_another) {
  tuner::LinkCost link;
  link.latency_s = 40e-6;
  link.bytes = *tuner::Curve::from_knots({{1 << 20, (1 << 20) / 0.12e9}});
  const double before = link.latency_s + link.bytes.seconds(64 << 10);
  for (const double factor : {0.5, 1.0, 2.0, 2.4})
    EXPECT_TRUE(is_like(link, before * factor)) << factor;
  for (const double factor : {0.1, 0.33, 3.0, 4.0})
    EXPECT_FALSE(is_like(link, before * factor)) << factor;
}

TEST(MachineFacts, whatever_costs_depend_on_changes_the_fingerprint) {
  const MachineFacts facts{"cpu", "1 2 3", "6.1", 2};
  const std::string print = fingerprint(facts, "shm", false);
  EXPECT_EQ(print, fingerprint(facts, "shm", false));
  EXPECT_EQ(print.size(), 16U);
  for (const MachineFacts& other :
       {MachineFacts{"gpu", "1 2 3", "6.1", 2}, MachineFacts{"cpu", "1 2 4", "6.1", 2},
        MachineFacts{"cpu", "1 2 3", "6.2", 2}, MachineFacts{"cpu", "1 2 3", "6.1", 4}})
    EXPECT_NE(print, fingerprint(other, "shm", false));
  EXPECT_NE(print, fingerprint(facts, "shm tcp", true));
}

TEST(MachineFacts, processors_of_several_ranks_are_taken_together) {
  CpuSet one;
  one.words[0] = 1;
  CpuSet other;
  other.words[1] = 1;
  one.add(other);
  EXPECT_EQ(one.list(), (std::vector<int>{0, 64}));
}

TEST(MachineFacts, ranks_that_outnumber_the_cores_are_dealt_out) {
  CpuSet two;
  two.words[0] = 0b1010;
  CpuSet own;
  own.words[0] = 0b0001;
  const std::vector<CpuSet> ranks{two, own, two, two, two};
  EXPECT_EQ(share_of_cores(ranks, 0), 1);
  EXPECT_EQ(share_of_cores(ranks, 1), -1);  // alone on its core
  EXPECT_EQ(share_of_cores(ranks, 2), 3);
  EXPECT_EQ(share_of_cores(ranks, 3), 1);
  EXPECT_EQ(share_of_cores(ranks, 4), 3);
  EXPECT_EQ(share_of_cores({two, two}, 0), -1);
  EXPECT_EQ(share_of_cores({CpuSet{}}, 0), -1);  // it could not be asked
}

TEST(TuningCache, lies_where_the_user_keeps_caches) {
  Config config;
  EXPECT_EQ(cache_folder(config, only("XDG_CACHE_HOME", "/x")), "/x/tutti");
  EXPECT_EQ(cache_folder(config, only("XDG_CACHE_HOME", "x")), "");
  EXPECT_EQ(cache_folder(config, only("HOME", "/home/me")), "/home/me/.cache/tutti");
  EXPECT_EQ(cache_folder(config, only("SHELL", "sh")), "");
  config.cache_dir = "/elsewhere";
  EXPECT_EQ(cache_folder(config, only("HOME", "/home/me")), "/elsewhere");
  EXPECT_EQ(TuningPaths::in("/x", "abc").good, "/x/tuning-abc.json");
  EXPECT_EQ(TuningPaths::in("/x", "abc").rough, "/x/tuning-abc-rough.json");
  EXPECT_EQ(TuningPaths::in("", "abc").usable(std::chrono::minutes(1)), "");
}

TEST(TuningCache, a_pipe_in_the_place_of_a_table_is_not_waited_for) {
  std::string pattern = testing::TempDir() + "tutti-tuning-XXXXXX";
  const std::string folder = ::mkdtemp(pattern.data());
  const std::string path = folder + "/tuning.json";
  ASSERT_EQ(::mkfifo(path.c_str(), 0600), 0);
  EXPECT_EQ(load_machine(path).status().code(), Code::io);
  // What was measured takes its place.
  ASSERT_TRUE(save_machine(path, tuner::built_in_machine()).ok());
  EXPECT_TRUE(load_machine(path).ok());
  ::unlink(path.c_str());
  ::rmdir(folder.c_str());
}

}  // namespace
}  // namespace tutti::group
