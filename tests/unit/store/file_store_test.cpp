#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <thread>

#include "core/sockets.hpp"
#include "tutti/store.hpp"

namespace tutti {
namespace {

using std::chrono::milliseconds;
using testing::HasSubstr;

class FileStoreTest : public testing::Test {
 protected:
  FileStoreTest() {
    std::string pattern = testing::TempDir() + "tutti-file-store-XXXXXX";
    folder_ = ::mkdtemp(pattern.data());
    path_ = folder_ + "/store";
  }
  ~FileStoreTest() override { std::filesystem::remove_all(folder_); }

  std::shared_ptr<Store> open() {
    auto store = open_file_store(path_);
    EXPECT_TRUE(store.ok()) << store.status().to_string();
    return *store;
  }

  std::string folder_;
  std::string path_;
};

TEST_F(FileStoreTest, what_was_set_is_there_when_opened_again) {
  ASSERT_TRUE(open()->set("a", "1").ok());
  ASSERT_TRUE(open()->remove("nothing").ok());
  EXPECT_EQ(*open()->get("a", milliseconds(0)), "1");
}

TEST_F(FileStoreTest, a_record_cut_off_by_a_death_is_cut_away) {
  ASSERT_TRUE(open()->set("whole", "1").ok());
  const auto whole = std::filesystem::file_size(path_);
  ASSERT_TRUE(open()->set("torn", std::string(1000, 't')).ok());
  const auto full = std::filesystem::file_size(path_);
  for (auto size = whole + 1; size < full; size += 97) {
    std::filesystem::resize_file(path_, size);
    auto store = open();
    EXPECT_EQ(*store->get("whole", milliseconds(0)), "1");
    EXPECT_EQ(store->get("torn", milliseconds(0)).status().code(), Code::timed_out);
    ASSERT_TRUE(store->set("torn", std::string(1000, 't')).ok());
    EXPECT_EQ(std::filesystem::file_size(path_), full);
  }
}

TEST_F(FileStoreTest, a_file_or_folder_that_others_can_get_at_is_refused) {
  (void)open();
  const auto refused = [&](const char* why) {
    const Status status = open_file_store(path_).status();
    EXPECT_EQ(status.code(), Code::invalid_argument) << status.to_string();
    EXPECT_THAT(status.message(), HasSubstr(why));
  };
  ASSERT_EQ(::chmod(path_.c_str(), 0644), 0);
  refused("chmod 600");
  ASSERT_EQ(::chmod(path_.c_str(), 0600), 0);
  ASSERT_EQ(::chmod(folder_.c_str(), 0777), 0);
  refused("chmod go-w");
  ASSERT_EQ(::chmod(folder_.c_str(), 01777), 0);  // as /tmp: nobody can take what is not his
  (void)open();
  if (::geteuid() != 0) return;  // only root can give files away
  ASSERT_EQ(::chown(path_.c_str(), 12345, static_cast<gid_t>(-1)), 0);
  refused("belongs to user 12345");
  ASSERT_EQ(::chown(folder_.c_str(), 12345, static_cast<gid_t>(-1)), 0);
  refused("belongs to user 12345");
}

TEST_F(FileStoreTest, a_link_or_a_fifo_in_its_place_is_refused_at_once) {
  ASSERT_EQ(::symlink((folder_ + "/elsewhere").c_str(), path_.c_str()), 0);
  EXPECT_THAT(open_file_store(path_).status().message(), HasSubstr("symbolic link"));
  EXPECT_FALSE(std::filesystem::exists(folder_ + "/elsewhere"));
  ASSERT_EQ(::unlink(path_.c_str()), 0);
  ASSERT_EQ(::mkfifo(path_.c_str(), 0600), 0);
  EXPECT_THAT(open_file_store(path_).status().message(), HasSubstr("not a regular file"));
}

// Another process was stopped while it held the lock.
TEST_F(FileStoreTest, a_lock_that_stays_ends_a_call_at_its_own_deadline) {
  auto store = open();
  ASSERT_TRUE(store->set("a", "1").ok());
  const Descriptor held(::open(path_.c_str(), O_RDWR | O_CLOEXEC));
  ASSERT_EQ(::flock(held.get(), LOCK_EX), 0);
  const auto start = std::chrono::steady_clock::now();
  const Status status = store->get("a", milliseconds(50)).status();
  EXPECT_LT(std::chrono::steady_clock::now() - start, std::chrono::seconds(10));
  EXPECT_EQ(status.code(), Code::timed_out);
  EXPECT_THAT(status.message(), HasSubstr("stays locked"));
}

TEST_F(FileStoreTest, a_key_that_is_there_is_found_though_others_are_at_the_file) {
  auto store = open();
  ASSERT_TRUE(store->set("a", "1").ok());
  Descriptor held(::open(path_.c_str(), O_RDWR | O_CLOEXEC));
  ASSERT_EQ(::flock(held.get(), LOCK_EX), 0);
  std::thread other([&] {
    std::this_thread::sleep_for(milliseconds(30));
    held.reset();
  });
  const auto value = store->get("a", milliseconds(1));
  other.join();
  ASSERT_TRUE(value.ok()) << value.status().to_string();
  EXPECT_EQ(*value, "1");
}

TEST_F(FileStoreTest, a_file_of_something_else_is_left_alone) {
  std::ofstream(path_) << "Dear diary, today I trained a model.";
  ASSERT_EQ(::chmod(path_.c_str(), 0600), 0);
  auto store = open_file_store(path_);
  ASSERT_FALSE(store.ok());
  EXPECT_EQ(store.status().code(), Code::corrupt);
  EXPECT_THAT(store.status().message(), HasSubstr(path_));
  std::stringstream text;
  text << std::ifstream(path_).rdbuf();
  EXPECT_EQ(text.str(), "Dear diary, today I trained a model.");
}

TEST_F(FileStoreTest, a_folder_that_is_not_there_is_an_io_error) {
  EXPECT_EQ(open_file_store(folder_ + "/no/store").status().code(), Code::io);
}

TEST_F(FileStoreTest, a_file_deleted_under_the_store_is_an_error_not_a_split_brain) {
  auto store = open();
  ASSERT_TRUE(store->set("a", "1").ok());
  std::filesystem::remove(path_);
  EXPECT_EQ(store->set("b", "2").code(), Code::io);
  EXPECT_EQ(store->get("a", milliseconds(0)).status().code(), Code::io);
}

TEST_F(FileStoreTest, processes_add_without_losing_a_count) {
  constexpr int kProcesses = 4;
  constexpr int kAdds = 100;
  std::vector<pid_t> children;
  std::fflush(nullptr);
  for (int i = 0; i < kProcesses; ++i) {
    const pid_t child = ::fork();
    ASSERT_GE(child, 0);
    if (child == 0) {
      const auto add_all = [&] {
        auto store = open_file_store(path_);
        bool good = store.ok();
        for (int n = 0; good && n < kAdds; ++n) good = (*store)->add("n", 1).ok();
        return good;
      };
      std::exit(add_all() ? 0 : 1);  // not _exit: sanitizers look for leaks there
    }
    children.push_back(child);
  }
  for (const pid_t child : children) {
    int status = 0;
    ASSERT_EQ(::waitpid(child, &status, 0), child);
    EXPECT_EQ(status, 0);
  }
  EXPECT_EQ(*open()->get("n", milliseconds(0)), std::to_string(kProcesses * kAdds));
}

}  // namespace
}  // namespace tutti
