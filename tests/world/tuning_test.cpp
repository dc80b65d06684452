// Costs are measured once per machine, kept, and the same on every rank.
#include <gmock/gmock.h>
#include <sys/stat.h>

#include <chrono>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <thread>

#include "support/worlds.hpp"
#include "tuner/machine.hpp"

namespace tutti::test {
namespace {

using std::filesystem::path;
using testing::HasSubstr;
using testing::Not;

// A cache and a log of this test's own.
class Folder {
 public:
  Folder() {
    std::string name = (std::filesystem::temp_directory_path() / "tutti_tuning_XXXXXX").string();
    EXPECT_NE(::mkdtemp(name.data()), nullptr);
    root_ = name;
  }
  ~Folder() { std::filesystem::remove_all(root_); }

  path cache() const { return root_ / "some" / "cache"; }
  path log() const { return root_ / "log"; }
  path file(const std::string& name) const { return root_ / name; }

  std::vector<path> tables() const {
    std::vector<path> found;
    if (std::filesystem::exists(cache()))
      for (const auto& entry : std::filesystem::directory_iterator(cache()))
        found.push_back(entry.path());
    return found;
  }
  // What was logged since the last call.
  std::string take_log() const {
    const std::string text = read(log());
    std::filesystem::remove(log());
    return text;
  }
  static std::string read(const path& file) {
    std::ostringstream text;
    text << std::ifstream(file).rdbuf();
    return text.str();
  }
  static void write(const path& file, const std::string& text) { std::ofstream(file) << text; }

 private:
  path root_;
};

World world(const Folder& folder, WorldKind kind, int size, const std::string& tuning) {
  return World{.kind = kind, .size = size, .tune = [&folder, tuning](Config& config) {
                 config.tuning = tuning;
                 config.cache_dir = folder.cache().string();
                 config.debug = "INFO";
                 config.debug_subsystems = "TUNE";
                 config.debug_file = folder.log().string();
               }};
}

// Every rank predicts the same, to the nanosecond, as only equal tables do.
void expect_agreement(Context& here) {
  for (const Collective collective : {Collective::all_reduce, Collective::all_to_all}) {
    for (std::size_t bytes = 64; bytes <= 4 << 20; bytes *= 8) {
      const auto mine = here.group->predict(collective, bytes);
      ASSERT_TRUE(mine.ok());
      std::int64_t said[2] = {mine->time.count(), -mine->time.count()};
      ASSERT_TRUE(here.group->all_reduce(Buffer{said, 2, Dtype::i64}, ReduceOp::max).ok());
      EXPECT_EQ(said[0], -said[1]) << bytes;
      EXPECT_GT(said[0], 0);
    }
  }
}

class Tuning : public testing::TestWithParam<WorldKind> {};

TEST_P(Tuning, measures_once_keeps_the_table_and_reads_it_the_next_time) {
  const int size = GetParam() == WorldKind::mixed ? 4 : 3;
  if (const auto why = unavailable(World{.kind = GetParam(), .size = size})) GTEST_SKIP() << *why;
  const Folder folder;
  run(world(folder, GetParam(), size, "measure"), expect_agreement);
  const std::string first = folder.take_log();
  EXPECT_THAT(first, HasSubstr("costs measured in"));
  ASSERT_EQ(folder.tables().size(), 1U);
  const path table = folder.tables()[0];
  EXPECT_THAT(table.filename().string(), testing::MatchesRegex("tuning-[0-9a-f]+\\.json"));
  const std::string text = Folder::read(table);
  const auto machine = tuner::parse_machine(text);
  ASSERT_TRUE(machine.ok()) << machine.status().to_string();
  const bool has_tcp = GetParam() == WorldKind::tcp || GetParam() == WorldKind::mixed;
  EXPECT_EQ(has_tcp, machine->tcp.measured);
  EXPECT_GT(machine->cores, 0);
  EXPECT_THAT(table.string(), HasSubstr(machine->fingerprint));
  struct stat facts {};
  ASSERT_EQ(::stat(table.c_str(), &facts), 0);
  EXPECT_EQ(facts.st_mode & 0777, 0600U);

  // Read, not measured; were it measured, no two tables would be equal to the byte. A network that
  // answers 2.5 times slower than before, three times in a row, is measured again, and busy test machines do that.
  run(world(folder, GetParam(), size, "auto"), expect_agreement);
  const std::string second = folder.take_log();
  if (second.find("the network has changed") == std::string::npos) {
    EXPECT_THAT(second, HasSubstr("costs from " + table.string()));
    EXPECT_THAT(second, Not(HasSubstr("costs measured in")));
    EXPECT_EQ(Folder::read(table), text);
  } else {
    EXPECT_TRUE(has_tcp);
  }

  run(world(folder, GetParam(), size, "measure"), expect_agreement);
  EXPECT_THAT(folder.take_log(), HasSubstr("costs measured in"));
  EXPECT_NE(Folder::read(table), text);
  EXPECT_EQ(folder.tables().size(), 1U);
}

INSTANTIATE_TEST_SUITE_P(Worlds, Tuning,
                         testing::Values(WorldKind::threads, WorldKind::shm, WorldKind::tcp,
                                         WorldKind::mixed),
                         [](const auto& info) { return std::string(to_string(info.param)); });

// A second or two by the budget; the bound is for machines that do ten other things.
TEST(TuningTime, measuring_does_not_take_long) {
  const Folder folder;
  for (const WorldKind kind : {WorldKind::shm, WorldKind::tcp}) {
    const auto start = std::chrono::steady_clock::now();
    run(world(folder, kind, 2, "measure"), [](Context&) {});
    EXPECT_LT(std::chrono::steady_clock::now() - start, std::chrono::seconds(10));
  }
}

TEST(TuningCache, a_damaged_table_is_a_warning_and_measured_again) {
  const Folder folder;
  run(world(folder, WorldKind::shm, 2, "measure"), [](Context&) {});
  const path table = folder.tables().at(0);
  (void)folder.take_log();
  const std::string good = Folder::read(table);
  Folder::write(table, good.substr(0, good.size() / 2));
  run(world(folder, WorldKind::shm, 2, "auto"), expect_agreement);
  const std::string log = folder.take_log();
  EXPECT_THAT(log, HasSubstr("WARN TUNE: measuring again, because the cache is of no use"));
  EXPECT_THAT(log, HasSubstr(table.string()));
  EXPECT_THAT(log, HasSubstr("costs measured in"));
}

TEST(TuningCache, a_table_of_another_machine_is_measured_again) {
  const Folder folder;
  run(world(folder, WorldKind::shm, 2, "measure"), [](Context&) {});
  const path table = folder.tables().at(0);
  (void)folder.take_log();
  auto machine = tuner::parse_machine(Folder::read(table));
  ASSERT_TRUE(machine.ok());
  machine->fingerprint = "0000000000000000";
  Folder::write(table, tuner::to_json(*machine));
  run(world(folder, WorldKind::shm, 2, "auto"), [](Context&) {});
  const std::string log = folder.take_log();
  EXPECT_THAT(log, HasSubstr("measured on another machine"));
  EXPECT_THAT(log, HasSubstr("costs measured in"));
}

TEST(TuningCache, a_table_of_another_network_is_measured_again) {
  const Folder folder;
  run(world(folder, WorldKind::tcp, 2, "measure"), [](Context&) {});
  const path table = folder.tables().at(0);
  (void)folder.take_log();
  auto machine = tuner::parse_machine(Folder::read(table));
  ASSERT_TRUE(machine.ok());
  machine->tcp.bytes = *tuner::Curve::from_knots({{1 << 20, 20.0}});
  Folder::write(table, tuner::to_json(*machine));
  run(world(folder, WorldKind::tcp, 2, "auto"), expect_agreement);
  const std::string log = folder.take_log();
  EXPECT_THAT(log, HasSubstr("measuring again, because the network has changed"));
  EXPECT_THAT(log, HasSubstr("costs measured in"));
}

// What a busy machine gave is not measured again by every job, and not believed for long.
TEST(TuningCache, a_rough_table_holds_for_some_minutes) {
  const Folder folder;
  run(world(folder, WorldKind::shm, 2, "measure"), [](Context&) {});
  const path good = folder.tables().at(0);
  const path rough = good.parent_path() / (good.stem().string() + "-rough.json");
  std::filesystem::rename(good, rough);
  (void)folder.take_log();
  run(world(folder, WorldKind::shm, 2, "auto"), expect_agreement);
  EXPECT_THAT(folder.take_log(), HasSubstr("costs from " + rough.string()));
  using std::filesystem::file_time_type;
  std::filesystem::last_write_time(rough, file_time_type::clock::now() - std::chrono::hours(1));
  run(world(folder, WorldKind::shm, 2, "auto"), expect_agreement);
  EXPECT_THAT(folder.take_log(), HasSubstr("costs measured in"));
  run(world(folder, WorldKind::shm, 2, "measure"), [](Context&) {});
  EXPECT_EQ(folder.tables(), std::vector<path>{good});  // a good one takes its place
}

TEST(TuningCache, kinds_of_link_have_tables_of_their_own) {
  const Folder folder;
  run(world(folder, WorldKind::shm, 2, "measure"), [](Context&) {});
  run(world(folder, WorldKind::tcp, 2, "measure"), [](Context&) {});
  EXPECT_EQ(folder.tables().size(), 2U);
}

TEST(TuningCache, a_cache_that_cannot_be_written_is_a_warning) {
  const Folder folder;
  Folder::write(folder.file("some"), "a file where a folder should be");
  run(world(folder, WorldKind::shm, 2, "measure"), expect_agreement);
  EXPECT_THAT(folder.take_log(), HasSubstr("WARN TUNE: measured costs are not kept"));
}

TEST(TuningFile, a_file_that_is_named_counts_and_is_not_changed) {
  const Folder folder;
  tuner::Machine machine = tuner::built_in_machine();
  machine.meet = *tuner::Curve::from_knots({{2, 0.5}});
  machine.memory.latency_s = 0.5;
  const path file = folder.file("mine.json");
  Folder::write(file, tuner::to_json(machine));
  run(world(folder, WorldKind::threads, 2, file.string()), [](Context& here) {
    const auto barrier = here.group->predict(Collective::barrier, 0);
    ASSERT_TRUE(barrier.ok());
    EXPECT_GE(barrier->time, std::chrono::milliseconds(500));
    expect_agreement(here);
  });
  EXPECT_THAT(folder.take_log(), HasSubstr("costs from " + file.string()));
  EXPECT_TRUE(folder.tables().empty());
}

TEST(TuningFile, a_file_that_cannot_be_used_fails_on_every_rank) {
  const Folder folder;
  const path file = folder.file("missing.json");
  const auto failures = collect(world(folder, WorldKind::shm, 3, file.string()), [](Context&) {});
  ASSERT_EQ(failures.size(), 3U);
  for (const Failure& failure : failures) {
    EXPECT_THAT(failure.text, HasSubstr(file.string()));
    EXPECT_THAT(failure.text, HasSubstr("TUTTI_TUNING is auto, fixed, measure or a file to read"));
  }
}

TEST(TuningFixed, measures_nothing_and_leaves_nothing) {
  const Folder folder;
  run(world(folder, WorldKind::shm, 2, "fixed"), expect_agreement);
  EXPECT_TRUE(folder.tables().empty());
  EXPECT_THAT(folder.take_log(), Not(HasSubstr("costs")));
}

TEST(TuningLog, every_new_choice_is_told_with_its_candidates_once) {
  const Folder folder;
  run(world(folder, WorldKind::threads, 2, "fixed"), [](Context& here) {
    std::vector<float> data(64);
    for (int i = 0; i < 3; ++i)
      ASSERT_TRUE(here.group->all_reduce(Buffer::of(data), ReduceOp::sum).ok());
  });
  const std::string log = folder.take_log();
  const std::string head = "all_reduce, 256 bytes, 2 ranks on 1 host";
  EXPECT_THAT(log, HasSubstr(head));
  EXPECT_EQ(log.find(head), log.rfind(head));
  EXPECT_THAT(log, HasSubstr("* direct"));
  EXPECT_THAT(log, HasSubstr("recursive_doubling"));
}

// Rank 0's word counts, whatever the others say: their messages must fit together.
TEST(TuningWish, ranks_that_wish_otherwise_follow_rank_0) {
  const Folder folder;
  for (const auto& [leader, other] : {std::pair{"fixed", "measure"}, {"measure", "fixed"}}) {
    const std::string wishes[] = {leader, other};
    const auto store = make_memory_store();
    std::chrono::nanoseconds predicted[2] = {};
    const auto live = [&](int rank) {
      GroupOptions options;
      options.rank = rank;
      options.size = 2;
      options.config.emplace();
      world(folder, WorldKind::threads, 2, wishes[rank]).tune(*options.config);
      const auto group = Group::create(store, options);
      ASSERT_TRUE(group.ok()) << group.status().to_string();
      predicted[rank] = (*group)->predict(Collective::all_reduce, 1 << 20)->time;
      EXPECT_TRUE((*group)->barrier().ok());
    };
    std::thread second(live, 1);
    live(0);
    second.join();
    EXPECT_EQ(predicted[0], predicted[1]) << leader;
  }
  EXPECT_EQ(folder.tables().size(), 1U);
}

}  // namespace
}  // namespace tutti::test
