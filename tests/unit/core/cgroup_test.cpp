#include "core/cgroup.hpp"

#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>

#include "core/limits.hpp"

namespace tutti {
namespace {

using Folders = std::vector<std::string>;

constexpr const char* kHybridMounts =
    "30 23 0:26 / /sys/fs/cgroup/unified rw,relatime shared:9 - cgroup2 cgroup2 rw\n"
    "31 23 0:27 / /sys/fs/cgroup/cpu,cpuacct rw shared:10 - cgroup cgroup rw,cpu,cpuacct\n"
    "32 23 0:28 / /sys/fs/cgroup/memory rw shared:11 - cgroup cgroup rw,memory\n";

TEST(cgroup, version_1_is_found_by_its_controller) {
  const auto found =
      Cgroup::read(CgroupKind::memory, "8:cpu,cpuacct:/\n4:memory:/a/b\n0::/c\n", kHybridMounts);
  EXPECT_FALSE(found.unified);
  EXPECT_EQ(found.folders, (Folders{"/sys/fs/cgroup/memory/a/b", "/sys/fs/cgroup/memory/a",
                                    "/sys/fs/cgroup/memory"}));
}

TEST(cgroup, version_2_has_what_no_other_line_has) {
  const auto found = Cgroup::read(CgroupKind::pids, "0::/c\n4:memory:/a/b\n", kHybridMounts);
  EXPECT_TRUE(found.unified);
  EXPECT_EQ(found.folders, (Folders{"/sys/fs/cgroup/unified/c", "/sys/fs/cgroup/unified"}));
}

TEST(cgroup, a_container_sees_only_what_is_mounted) {
  const auto found =
      Cgroup::read(CgroupKind::memory, "0::/docker/7/inner\n",
                   "30 23 0:26 /docker/7 /sys/fs/cgroup ro - cgroup2 cgroup rw,nsdelegate\n");
  EXPECT_EQ(found.folders, (Folders{"/sys/fs/cgroup/inner", "/sys/fs/cgroup"}));
}

TEST(cgroup, no_groups_are_no_limit) {
  const auto none = Cgroup::read(CgroupKind::memory, "", "");
  EXPECT_TRUE(none.folders.empty());
  EXPECT_EQ(none.limit(CgroupKind::memory), kNoLimit);
  EXPECT_EQ(none.room(CgroupKind::pids), kNoLimit);
}

// Files as the kernel shows them, in a folder of the test's own.
class CgroupFiles : public ::testing::Test {
 protected:
  void SetUp() override {
    folder_ =
        std::filesystem::temp_directory_path() / ("cgroup_test." + std::to_string(::getpid()));
    std::filesystem::create_directories(folder_ / "inner");
  }
  void TearDown() override { std::filesystem::remove_all(folder_); }
  void write(const std::string& name, const std::string& text) {
    std::ofstream(folder_ / name) << text;
  }
  Cgroup both(bool unified) { return {{(folder_ / "inner").string(), folder_.string()}, unified}; }

  std::filesystem::path folder_;
};

TEST_F(CgroupFiles, the_tightest_on_the_way_up_counts) {
  write("inner/memory.max", "max\n");
  write("memory.max", "1000\n");
  write("memory.current", "700\n");
  write("memory.stat", "anon 100\ninactive_file 150\nactive_file 50\n");
  EXPECT_EQ(both(true).limit(CgroupKind::memory), 1000u);
  EXPECT_EQ(both(true).room(CgroupKind::memory), 500u);
  write("inner/memory.limit_in_bytes", "300\n");
  write("inner/memory.usage_in_bytes", "250\n");
  write("inner/memory.stat", "inactive_file 1\ntotal_inactive_file 50\n");
  EXPECT_EQ(both(false).room(CgroupKind::memory), 100u);
  write("inner/pids.max", "20\n");
  write("inner/pids.current", "15\n");
  EXPECT_EQ(both(false).room(CgroupKind::pids), 5u);
}

TEST_F(CgroupFiles, kills_are_those_of_the_innermost) {
  write("inner/memory.events", "low 0\noom 4\noom_kill 3\n");
  write("inner/memory.oom_control", "oom_kill_disable 0\nunder_oom 0\noom_kill 2\n");
  EXPECT_EQ(both(true).memory_kills(), 3u);
  EXPECT_EQ(both(false).memory_kills(), 2u);
}

}  // namespace
}  // namespace tutti
