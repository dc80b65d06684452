#include "core/private_file.hpp"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <filesystem>
#include <fstream>
#include <string>

#include "core/files.hpp"

namespace tutti {
namespace {

class PrivateFileTest : public testing::Test {
 protected:
  PrivateFileTest() {
    std::string pattern = testing::TempDir() + "tutti-private-XXXXXX";
    folder_ = ::mkdtemp(pattern.data());
    path_ = folder_ + "/dump.json";
  }
  ~PrivateFileTest() override { std::filesystem::remove_all(folder_); }

  bool write(const std::string& text) const {
    PrivateFile file(path_.c_str());
    const bool whole =
        ::write(file.descriptor(), text.data(), text.size()) == static_cast<ssize_t>(text.size());
    return file.finish(whole ? 0 : errno);
  }
  long files_here() const {
    return std::distance(std::filesystem::directory_iterator(folder_), {});
  }

  std::string folder_;
  std::string path_;
};

TEST_F(PrivateFileTest, is_for_its_owner_alone) {
  ::umask(0);
  ASSERT_TRUE(write("secret"));
  struct stat facts {};
  ASSERT_EQ(::stat(path_.c_str(), &facts), 0);
  EXPECT_EQ(facts.st_mode & 0777, 0600U);
  EXPECT_EQ(read_text(path_), "secret");
}

TEST_F(PrivateFileTest, a_link_at_its_name_is_replaced_and_its_target_left_alone) {
  const std::string target = folder_ + "/target";
  std::ofstream(target) << "precious";
  ASSERT_EQ(::symlink(target.c_str(), path_.c_str()), 0);
  ASSERT_TRUE(write("dump"));
  EXPECT_EQ(read_text(target), "precious");
  EXPECT_EQ(read_text(path_), "dump");
}

TEST_F(PrivateFileTest, a_pipe_at_its_name_does_not_hold_it_up) {
  ASSERT_EQ(::mkfifo(path_.c_str(), 0600), 0);
  ASSERT_TRUE(write("dump"));
  EXPECT_EQ(read_text(path_), "dump");
}

TEST_F(PrivateFileTest, what_cannot_be_whole_leaves_what_was_there) {
  ASSERT_TRUE(write("first"));
  {
    PrivateFile file(path_.c_str());
    ASSERT_GE(file.descriptor(), 0);
    EXPECT_FALSE(file.finish(ENOSPC));
    EXPECT_EQ(file.error(), ENOSPC);
  }
  { const PrivateFile abandoned(path_.c_str()); }
  EXPECT_EQ(read_text(path_), "first");
  EXPECT_EQ(files_here(), 1);
}

TEST_F(PrivateFileTest, says_why_it_cannot_be_made) {
  const std::string nowhere = folder_ + "/none/dump.json";
  PrivateFile file(nowhere.c_str());
  EXPECT_LT(file.descriptor(), 0);
  EXPECT_EQ(file.error(), ENOENT);
  EXPECT_FALSE(file.finish());
}

}  // namespace
}  // namespace tutti
