// Checkpoints of a replica whose state is split in any way: saved on n ranks, loaded on m, refused
// by name where something is wrong, and never half there.
#include "tutti/train/checkpoint.hpp"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <random>
#include <set>
#include <sstream>

#include "checkpoint/safe_file.hpp"
#include "support/worlds.hpp"
#include "train/fake_replica.hpp"
#include "train/folder.hpp"

namespace tutti::test {
namespace {

using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;
using train::CheckpointInfo;

CheckpointInfo info_of(std::int64_t iteration) {
  CheckpointInfo info;
  info.iteration = iteration;
  info.extra = {{"seed", "42"}, {"position", std::to_string(iteration * 100)}};
  return info;
}

// Saves version `version` as that iteration.
Status save(Context& here, const std::string& folder, int version, int keep = 0,
            Split split = Split::shards) {
  FakeReplica replica(*here.group, split, fake_parameters());
  replica.fill(version);
  return train::save_checkpoint(replica, folder, info_of(version), keep);
}

void save_in_world(const std::string& folder, int version, int ranks, int keep = 0,
                   Split split = Split::shards) {
  run(World{.kind = WorldKind::threads, .size = ranks}, [&](Context& here) {
    const Status status = save(here, folder, version, keep, split);
    EXPECT_TRUE(status.ok()) << status.to_string();
  });
}

void expect_loads(Context& here, const std::string& path, int version,
                  Split split = Split::shards) {
  FakeReplica replica(*here.group, split, fake_parameters());
  const auto info = train::load_checkpoint(replica, path);
  ASSERT_TRUE(info.ok()) << info.status().to_string();
  EXPECT_EQ(info->iteration, version);
  EXPECT_EQ(info->extra, info_of(version).extra);
  EXPECT_THAT(info->order, ElementsAre("last", "first"));
  EXPECT_EQ(replica.wrong(version), 0);
}

void expect_loads_in_world(const std::string& path, int version, int ranks = 2) {
  run(World{.kind = WorldKind::threads, .size = ranks},
      [&](Context& here) { expect_loads(here, path, version); });
}

// ---- any number of ranks to any other

TEST(Checkpoint, saved_on_n_ranks_is_loaded_on_m_to_the_bit_however_the_state_is_split) {
  std::vector<std::pair<int, int>> cases{{8, 3}};
  for (int n = 1; n <= 4; ++n)
    for (int m = 1; m <= 4; ++m) cases.emplace_back(n, m);
  constexpr Split kSplits[] = {Split::everything, Split::shards, Split::scattered};
  for (const auto& [n, m] : cases)
    for (Split saved : kSplits) {
      SCOPED_TRACE(testing::Message() << n << " ranks, " << to_string(saved) << ", to " << m);
      Folder folder;
      save_in_world(folder.path(), 7, n, 0, saved);
      run(World{.kind = WorldKind::threads, .size = m}, [&](Context& here) {
        for (Split loaded : kSplits) expect_loads(here, folder.path(), 7, loaded);
      });
    }
}

TEST(Checkpoint, works_in_processes_over_shm_and_tcp) {
  for (WorldKind kind : {WorldKind::shm, WorldKind::tcp}) {
    Folder folder;
    run(World{.kind = kind, .size = 3}, [&](Context& here) {
      const Status status = save(here, folder.path(), 5, 0, Split::everything);
      ASSERT_TRUE(status.ok()) << status.to_string();
      expect_loads(here, folder.path(), 5, Split::scattered);
    });
  }
}

TEST(Checkpoint, stores_each_element_of_the_state_once_whoever_keeps_it) {
  Folder sharded, plain;
  save_in_world(sharded.path(), 1, 3, 0, Split::shards);
  save_in_world(plain.path(), 1, 3, 0, Split::everything);
  std::size_t bytes[2] = {0, 0};
  for (int rank = 0; rank < 3; ++rank) {
    const std::string name =
        "iter_0000001/state_0000" + std::to_string(rank) + "_of_00003.safetensors";
    bytes[0] += bytes_of(sharded / name).size();
    bytes[1] += bytes_of(plain / name).size();
    // Not all of it on one rank: a third each, but for the headers.
    EXPECT_LT(bytes_of(plain / name).size(), 10'000u);
  }
  EXPECT_LT(bytes[1], bytes[0] + 8'000);
}

TEST(Checkpoint, is_described_without_a_model) {
  Folder folder;
  save_in_world(folder.path(), 12, 2);
  for (const std::string& path : {folder.path(), folder / "iter_0000012"}) {
    const auto info = train::inspect_checkpoint(path);
    ASSERT_TRUE(info.ok()) << info.status().to_string();
    EXPECT_EQ(info->iteration, 12);
    EXPECT_EQ(info->ranks, 2);
    EXPECT_EQ(info->extra, info_of(12).extra);
  }
}

// ---- the folder

TEST(Checkpoint, older_ones_go_when_there_are_more_than_to_keep_and_the_newest_is_loaded) {
  Folder folder;
  for (int version : {10, 20, 30, 40}) save_in_world(folder.path(), version, 2, 2);
  EXPECT_THAT(folder.names(), ElementsAre("iter_0000030", "iter_0000040", "latest"));
  expect_loads_in_world(folder.path(), 40);
  expect_loads_in_world(folder / "iter_0000030", 30);
  // A run that began again from an earlier iteration does not lose what it has just saved.
  save_in_world(folder.path(), 15, 2, 2);
  EXPECT_THAT(folder.names(), ElementsAre("iter_0000015", "iter_0000040", "latest"));
  expect_loads_in_world(folder.path(), 15);
}

TEST(Checkpoint, replaces_one_of_the_same_iteration) {
  Folder folder;
  save_in_world(folder.path(), 3, 2);
  save_in_world(folder.path(), 3, 1);
  EXPECT_THAT(folder.names(), ElementsAre("iter_0000003", "latest"));
  expect_loads_in_world(folder.path(), 3);
}

TEST(Checkpoint, what_a_killed_run_left_is_not_taken_for_one_and_is_removed_by_the_next_save) {
  Folder folder;
  save_in_world(folder.path(), 1, 1);
  std::filesystem::copy(folder / "iter_0000001", folder / ".tmp_iter_0000099");
  std::filesystem::remove(folder / "latest");
  std::filesystem::create_directory(folder / "iter_0000050");  // not complete: no manifest
  expect_loads_in_world(folder.path(), 1);
  save_in_world(folder.path(), 2, 1, 1);
  EXPECT_THAT(folder.names(), ElementsAre("iter_0000002", "iter_0000050", "latest"))
      << "only complete ones are counted and removed";
}

TEST(Checkpoint, the_newest_whole_one_is_found_by_every_rank) {
  Folder folder;
  const auto expect_newest = [](const std::string& path, const std::string& wanted) {
    run(World{.kind = WorldKind::threads, .size = 3}, [&](Context& here) {
      const auto found = train::newest_checkpoint(*here.group, path);
      ASSERT_TRUE(found.ok()) << found.status().to_string();
      EXPECT_EQ(*found, wanted);
    });
  };
  expect_newest(folder / "none", "");
  expect_newest(folder.path(), "");
  for (const int version : {5, 9, 2}) save_in_world(folder.path(), version, 2);
  overwrite(folder / ".tmp_latest", "torn");
  expect_newest(folder.path(), folder / "iter_0000002");  // by `latest`, not by number
  EXPECT_EQ(folder.names().count(".tmp_latest"), 0u);
  std::filesystem::remove(folder / "iter_0000002/model-00002-of-00002.safetensors");
  expect_newest(folder.path(), folder / "iter_0000009");
  overwrite(folder / "iter_0000009/checkpoint.json", "{");
  expect_newest(folder.path(), folder / "iter_0000005");
}

// ---- refusals

// Every rank refuses with these words, and nothing of the replica has changed.
void expect_refused(const std::string& path, Code code, const testing::Matcher<std::string>& words,
                    const std::vector<FakeParameter>& parameters = fake_parameters()) {
  run(World{.kind = WorldKind::threads, .size = 3}, [&](Context& here) {
    FakeReplica replica(*here.group, Split::shards, parameters);
    replica.fill(77);
    const auto info = train::load_checkpoint(replica, path);
    EXPECT_EQ(info.status().code(), code) << info.status().to_string();
    EXPECT_THAT(info.status().message(), words);
    EXPECT_EQ(replica.wrong(77), 0) << "a refused checkpoint must leave the model alone";
  });
}

class Damage : public testing::Test {
 protected:
  Damage() { save_in_world(folder_.path(), 9, 4); }
  std::string file(const std::string& name) const { return folder_ / ("iter_0000009/" + name); }
  Folder folder_;
};

TEST_F(Damage, of_any_file_is_refused_with_its_name) {
  for (const std::string name :
       {"model-00003-of-00004.safetensors", "model.safetensors.index.json",
        "state_00000_of_00004.safetensors", "state_00003_of_00004.safetensors"}) {
    const std::string good = bytes_of(file(name));
    flip_bit(file(name));
    expect_refused(folder_.path(), Code::corrupt, AllOf(HasSubstr(name), HasSubstr("rank ")));
    flip_bit(file(name), 1);
    expect_refused(folder_.path(), Code::corrupt, HasSubstr(name));
    overwrite(file(name), good.substr(0, good.size() - 4));
    expect_refused(folder_.path(), Code::corrupt, AllOf(HasSubstr(name), HasSubstr("torn")));
    overwrite(file(name), good + "more");
    expect_refused(folder_.path(), Code::corrupt, HasSubstr(name));
    std::filesystem::remove(file(name));
    expect_refused(folder_.path(), Code::io, HasSubstr(name));
    overwrite(file(name), good);
  }
  expect_loads_in_world(folder_.path(), 9);
}

TEST_F(Damage, by_a_file_of_another_checkpoint_is_refused_with_its_name) {
  Folder other;
  save_in_world(other.path(), 11, 4);
  const std::string name = "state_00002_of_00004.safetensors";
  const std::string foreign = bytes_of(other / ("iter_0000011/" + name));
  ASSERT_EQ(foreign.size(), bytes_of(file(name)).size()) << "only then it is a fair trial";
  overwrite(file(name), foreign);
  expect_refused(folder_.path(), Code::corrupt, HasSubstr(name));
}

TEST_F(Damage, of_any_byte_of_the_manifest_is_refused) {
  const std::string good = bytes_of(file("checkpoint.json"));
  std::mt19937 random(1);
  for (int i = 0; i < 8; ++i) {
    flip_bit(file("checkpoint.json"), 1 + random() % good.size());
    expect_refused(folder_.path(), Code::corrupt, HasSubstr("checkpoint.json"));
    overwrite(file("checkpoint.json"), good);
  }
  overwrite(file("checkpoint.json"), good.substr(0, good.size() / 2));
  expect_refused(folder_.path(), Code::corrupt, HasSubstr("checkpoint.json"));
  std::filesystem::remove(file("checkpoint.json"));
  expect_refused(folder_ / "iter_0000009", Code::io, HasSubstr("not completed"));
  expect_refused(folder_.path(), Code::io, AllOf(HasSubstr("latest"), HasSubstr("iter_0000009")));
}

TEST_F(Damage, of_latest_is_refused) {
  overwrite(folder_ / "latest", "../../etc\n");
  expect_refused(folder_.path(), Code::corrupt, HasSubstr("latest"));
  expect_refused(folder_ / "nowhere", Code::io, HasSubstr("nowhere"));
}

TEST_F(Damage, none_but_another_model_is_refused_naming_the_first_parameter_that_differs) {
  auto parameters = fake_parameters();
  parameters[2].shape = {7, 6};
  expect_refused(folder_.path(), Code::mismatch,
                 AllOf(HasSubstr("layers.0|odd"), HasSubstr("[7, 3, 2]"), HasSubstr("[7, 6]")),
                 parameters);
  parameters = fake_parameters();
  parameters[3].dtype = Dtype::f32;
  expect_refused(folder_.path(), Code::mismatch, HasSubstr("layers.1.bf16"), parameters);
  parameters = fake_parameters();
  parameters.push_back({"more", {2}});
  expect_refused(folder_.path(), Code::mismatch, HasSubstr("'more' is not in it"), parameters);
  parameters = fake_parameters();
  parameters.erase(parameters.begin() + 1);
  expect_refused(folder_.path(), Code::mismatch, HasSubstr("'first'"), parameters);
  parameters = fake_parameters();
  parameters[0].aliases = {};
  parameters.push_back({"head.weight", {37, 11}});
  expect_refused(folder_.path(), Code::mismatch,
                 HasSubstr("'head.weight' is another name of 'embedding.weight'"), parameters);
}

// ---- module buffers

// Of several types, with values that tell rank and version.
struct Buffers {
  explicit Buffers(int value) : mean(3, static_cast<float>(value)), batches(1, value), mask(5, 1) {
    mask[0] = value % 2 == 0;
  }
  std::vector<train::ModuleBuffer> list() {
    return {{"norm.running_mean", {3}, Buffer::of(mean)},
            {"norm.num_batches_tracked", {}, Buffer::of(batches)},
            {"mask", {5, 1}, {mask.data(), mask.size(), Dtype::boolean}}};
  }
  bool operator==(const Buffers&) const = default;
  std::vector<float> mean;
  std::vector<std::int64_t> batches;
  std::vector<std::uint8_t> mask;
};

void save_with_buffers(const std::string& folder, int ranks) {
  run(World{.kind = WorldKind::threads, .size = ranks}, [&](Context& here) {
    FakeReplica replica(*here.group, Split::shards, fake_parameters());
    replica.fill(4);
    Buffers buffers(40 + here.rank);
    replica.set_buffers([&] { return buffers.list(); });
    const Status status = train::save_checkpoint(replica, folder, info_of(4));
    EXPECT_TRUE(status.ok()) << status.to_string();
  });
}

TEST(ModuleBuffers, of_rank_0_are_saved_and_loaded_on_every_rank) {
  Folder folder;
  save_with_buffers(folder.path(), 3);
  run(World{.kind = WorldKind::threads, .size = 2}, [&](Context& here) {
    FakeReplica replica(*here.group, Split::everything, fake_parameters());
    Buffers buffers(90 + here.rank);
    replica.set_buffers([&] { return buffers.list(); });
    const auto info = train::load_checkpoint(replica, folder.path());
    ASSERT_TRUE(info.ok()) << info.status().to_string();
    EXPECT_THAT(info->warnings, testing::IsEmpty());
    EXPECT_EQ(buffers, Buffers(40));
    EXPECT_EQ(replica.wrong(4), 0);
  });
}

TEST(ModuleBuffers, that_differ_are_refused_by_name_and_leave_the_model_alone) {
  Folder folder, without;
  save_with_buffers(folder.path(), 2);
  save_in_world(without.path(), 4, 2);
  run(World{.kind = WorldKind::threads, .size = 2}, [&](Context& here) {
    FakeReplica replica(*here.group, Split::shards, fake_parameters());
    replica.fill(77);
    Buffers buffers(90);
    const auto expect_refused = [&](const std::string& path, const std::string& words) {
      const auto info = train::load_checkpoint(replica, path);
      EXPECT_EQ(info.status().code(), Code::mismatch) << info.status().to_string();
      EXPECT_THAT(info.status().message(), HasSubstr(words));
      EXPECT_EQ(replica.wrong(77), 0);
      EXPECT_EQ(buffers, Buffers(90));
    };
    expect_refused(folder.path(), "'norm.running_mean' is in it and not here");
    replica.set_buffers([&] { return buffers.list(); });
    expect_refused(without.path(), "buffer 'norm.running_mean' is not in it");
    replica.set_buffers([&] {
      auto list = buffers.list();
      list[0].shape = {1, 3};
      return list;
    });
    expect_refused(folder.path(),
                   "buffer 'norm.running_mean' is f32 [3] there and f32 [1, 3] here");
  });
}

// ---- other versions

std::string of_version(int version) {
  const char* source = std::getenv("TUTTI_SOURCE_DIR");
  return source == nullptr ? "" : fmt::format("{}/tests/train/version_{}", source, version);
}

// tests/train/version_1 and version_2 were written by the builds before versions 2 and 3.
TEST(OlderVersion, is_loaded_and_what_it_lacks_is_told) {
  const std::string path = of_version(1);
  if (path.empty()) GTEST_SKIP() << "TUTTI_SOURCE_DIR says where the checkpoint lies";
  run(World{.kind = WorldKind::threads, .size = 3}, [&](Context& here) {
    expect_loads(here, path, 7);
    FakeReplica replica(*here.group, Split::scattered, fake_parameters());
    Buffers buffers(90 + here.rank);
    replica.set_buffers([&] { return buffers.list(); });
    const auto info = train::load_checkpoint(replica, path);
    ASSERT_TRUE(info.ok()) << info.status().to_string();
    EXPECT_EQ(replica.wrong(7), 0);
    EXPECT_EQ(buffers, Buffers(90 + here.rank)) << "they stay as they are";
    EXPECT_THAT(info->warnings,
                ElementsAre(AllOf(HasSubstr("version 1"), HasSubstr("'norm.running_mean'"))));
  });
}

TEST(OlderVersion, with_buffers_is_loaded_with_them) {
  const std::string path = of_version(2);
  if (path.empty()) GTEST_SKIP() << "TUTTI_SOURCE_DIR says where the checkpoint lies";
  for (const int ranks : {1, 2, 3})
    run(World{.kind = WorldKind::threads, .size = ranks}, [&](Context& here) {
      for (const Split split : {Split::everything, Split::shards, Split::scattered}) {
        FakeReplica replica(*here.group, split, fake_parameters());
        Buffers buffers(90 + here.rank);
        replica.set_buffers([&] { return buffers.list(); });
        const auto info = train::load_checkpoint(replica, path);
        ASSERT_TRUE(info.ok()) << info.status().to_string();
        EXPECT_EQ(replica.wrong(4), 0);
        EXPECT_EQ(buffers, Buffers(40));
        EXPECT_THAT(info->warnings, testing::IsEmpty());
      }
    });
}

// ---- saves that fail

TEST(FailedSave, on_one_rank_is_told_by_all_and_leaves_the_older_checkpoint) {
  Folder folder;
  save_in_world(folder.path(), 1, 3);
  run(World{.kind = WorldKind::shm, .size = 3}, [&](Context& here) {
    if (here.rank == 2) {  // as a full disk would, on this rank alone
      signal(SIGXFSZ, SIG_IGN);
      const rlimit small{1000, 1000};
      ASSERT_EQ(setrlimit(RLIMIT_FSIZE, &small), 0);
    }
    const Status status = save(here, folder.path(), 2, 1);
    EXPECT_EQ(status.code(), Code::io) << status.to_string();
    EXPECT_THAT(status.message(), AllOf(HasSubstr("rank 2"), HasSubstr("state_00002_of_00003"),
                                        HasSubstr("too large")));
  });
  EXPECT_THAT(folder.names(), ElementsAre("iter_0000001", "latest"));
  expect_loads_in_world(folder.path(), 1);
}

TEST(FailedSave, into_something_that_is_no_folder_names_it) {
  Folder folder;
  overwrite(folder / "file", "x");
  run(World{.kind = WorldKind::threads, .size = 2}, [&](Context& here) {
    const Status status = save(here, folder / "file", 2);
    EXPECT_EQ(status.code(), Code::io);
    EXPECT_THAT(status.message(), HasSubstr(folder / "file"));
  });
}

TEST(FailedSave, by_a_killed_rank_ends_the_others_and_leaves_the_older_checkpoint) {
  Folder folder;
  save_in_world(folder.path(), 1, 3);
  // The second look at the state is when files are written.
  for (int moment : {1, 2}) {
    World world{.kind = WorldKind::shm, .size = 3};
    world.doomed = {1};
    run(world, [&](Context& here) {
      FakeReplica replica(*here.group, Split::shards, fake_parameters());
      replica.fill(2);
      if (here.rank == 1)
        replica.on_state = [&](int call) {
          if (call == moment) kill(getpid(), SIGKILL);
        };
      const Status status = train::save_checkpoint(replica, folder.path(), info_of(2), 1);
      EXPECT_EQ(status.code(), Code::peer_lost) << status.to_string();
      EXPECT_EQ(status.peer(), 1) << status.to_string();
    });
    expect_loads_in_world(folder.path(), 1);
  }
  save_in_world(folder.path(), 3, 3, 1);
  EXPECT_THAT(folder.names(), ElementsAre("iter_0000003", "latest"));
}

// A process that saves as fast as it can is killed at whatever moment, again and again: what it has
// left can always be loaded, and is never older than what it said was saved.
TEST(FailedSave, by_kill_at_any_moment_leaves_a_complete_checkpoint) {
  Folder folder;
  std::mt19937 random(3);
  int version = 1;
  for (int round = 0; round < 25; ++round) {
    int told[2];
    ASSERT_EQ(pipe(told), 0);
    const pid_t child = fork();
    ASSERT_GE(child, 0);
    if (child == 0) {
      prctl(PR_SET_PDEATHSIG, SIGKILL);
      GroupOptions options;
      options.rank = 0;
      options.size = 1;
      options.config.emplace().tuning = "fixed";
      auto group = Group::create(make_memory_store(), options);
      if (!group.ok()) _exit(2);
      for (int next = version;; ++next) {
        FakeReplica replica(**group, Split::shards, fake_parameters());
        replica.fill(next);
        if (!train::save_checkpoint(replica, folder / "saved", info_of(next), 1 + next % 2).ok())
          _exit(2);
        if (write(told[1], &next, sizeof next) != sizeof next) _exit(2);
      }
    }
    close(told[1]);
    int last = 0;
    ASSERT_EQ(read(told[0], &last, sizeof last), static_cast<ssize_t>(sizeof last));
    usleep(static_cast<useconds_t>(random() % 20'000));
    kill(child, SIGKILL);
    int status = 0;
    waitpid(child, &status, 0);
    ASSERT_TRUE(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL) << status;
    for (int next = 0; read(told[0], &next, sizeof next) == sizeof next;) last = next;
    close(told[0]);
    const auto info = train::inspect_checkpoint(folder / "saved");
    ASSERT_TRUE(info.ok()) << info.status().to_string();
    EXPECT_GE(info->iteration, last);
    EXPECT_LE(info->iteration, last + 1);
    expect_loads_in_world(folder / "saved", static_cast<int>(info->iteration), 1);
    version = static_cast<int>(info->iteration) + 1;
  }
}

// ---- other readers

// What the reader says of a checkpoint's model, by name.
std::multiset<std::string> listed(const std::string& file, const Folder& folder) {
  const std::string output = folder / "listing";
  const std::string command = fmt::format("python3 {}/tests/train/read_safetensors.py {} > {}",
                                          std::getenv("TUTTI_SOURCE_DIR"), file, output);
  EXPECT_EQ(std::system(command.c_str()), 0);
  std::multiset<std::string> lines;
  std::istringstream text(bytes_of(output));
  for (std::string line; std::getline(text, line);) lines.insert(line);
  return lines;
}

std::multiset<std::string> expected_listing() {
  const Folder folder;
  run(World{.kind = WorldKind::threads, .size = 1}, [&](Context& here) {
    FakeReplica replica(*here.group, Split::shards, fake_parameters());
    replica.fill(4);
    std::string list = "head.weight embedding.weight\n";
    for (const train::Parameter& parameter : replica.parameters()) {
      std::string shape;
      for (const std::int64_t extent : parameter.shape) shape += " " + std::to_string(extent);
      const std::string_view bytes(static_cast<const char*>(parameter.value.data),
                                   parameter.value.bytes());
      list += parameter.name + "\t" + (parameter.value.dtype == Dtype::f32 ? "F32" : "BF16") +
              shape + "\t" + checkpoint::sha256_of(bytes) + "\n";
    }
    overwrite(folder / "expected", list);
  });
  std::multiset<std::string> lines;
  std::istringstream text(bytes_of(folder / "expected"));
  for (std::string line; std::getline(text, line);) lines.insert(line);
  return lines;
}

TEST(ModelFile, is_read_by_a_reader_that_knows_nothing_of_tutti) {
  if (std::getenv("TUTTI_SOURCE_DIR") == nullptr)
    GTEST_SKIP() << "TUTTI_SOURCE_DIR says where the reader lies";
  for (const int ranks : {1, 3}) {
    Folder folder;
    save_in_world(folder.path(), 4, ranks);
    const std::string model = folder / "iter_0000004/model.safetensors";
    auto lines = listed(ranks == 1 ? model : model + ".index.json", folder);
    EXPECT_EQ(lines.erase("format pt"), static_cast<std::size_t>(ranks)) << "in each file";
    EXPECT_EQ(lines, expected_listing());
  }
}

TEST(ModelFile, shares_of_several_ranks_are_of_about_one_size) {
  Folder folder;
  save_in_world(folder.path(), 4, 3);
  // The largest tensor has 4000 bytes, all of them 6300.
  for (int file = 1; file <= 3; ++file) {
    const std::string name = fmt::format("iter_0000004/model-0000{}-of-00003.safetensors", file);
    EXPECT_LT(bytes_of(folder / name).size(), 4700u) << name;
  }
}

}  // namespace
}  // namespace tutti::test
