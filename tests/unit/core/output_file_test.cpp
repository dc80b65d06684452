#include "core/output_file.hpp"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <filesystem>

#include "core/files.hpp"

namespace tutti {
namespace {

namespace fs = std::filesystem;
using testing::HasSubstr;

class OutputFileTest : public testing::Test {
 protected:
  OutputFileTest() {
    char name[] = "/tmp/tutti_output_XXXXXX";
    folder_ = ::mkdtemp(name);
  }
  ~OutputFileTest() override { fs::remove_all(folder_); }
  std::string path(const std::string& name) const { return folder_ + "/" + name; }
  std::size_t files() const {
    return static_cast<std::size_t>(
        std::distance(fs::directory_iterator(folder_), fs::directory_iterator()));
  }

  std::string folder_;
};

TEST_F(OutputFileTest, replaces_a_file_whole_and_keeps_its_mode) {
  ASSERT_TRUE(write_file(path("x"), "old").ok());
  ASSERT_EQ(::chmod(path("x").c_str(), 0640), 0);
  auto file = OutputFile::open(path("x"));
  ASSERT_TRUE(file.ok()) << file.status().to_string();
  ASSERT_TRUE(file->write("new").ok());
  EXPECT_EQ(read_text(path("x")), "old");
  ASSERT_TRUE(file->finish().ok());
  EXPECT_EQ(read_text(path("x")), "new");
  struct stat facts {};
  ASSERT_EQ(::stat(path("x").c_str(), &facts), 0);
  EXPECT_EQ(facts.st_mode & 07777, 0640u);
  EXPECT_EQ(files(), 1u);
}

TEST_F(OutputFileTest, without_an_end_leaves_what_was_there) {
  ASSERT_TRUE(write_file(path("x"), "old").ok());
  {
    auto file = OutputFile::open(path("x"));
    ASSERT_TRUE(file.ok());
    ASSERT_TRUE(file->write("half").ok());
  }
  EXPECT_EQ(read_text(path("x")), "old");
  EXPECT_EQ(files(), 1u);
}

TEST_F(OutputFileTest, of_a_killed_process_leaves_nothing) {
  ASSERT_TRUE(write_file(path("x"), "old").ok());
  const pid_t child = ::fork();
  if (child == 0) {
    auto file = OutputFile::open(path("x"));
    ::_exit(file.ok() && file->write("half").ok() ? 7 : 1);  // without a destructor
  }
  int status = 0;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  ASSERT_EQ(WEXITSTATUS(status), 7);
  EXPECT_EQ(read_text(path("x")), "old");
  EXPECT_EQ(files(), 1u);
}

TEST_F(OutputFileTest, follows_links_and_keeps_them) {
  ASSERT_EQ(::symlink("b", path("a").c_str()), 0);
  ASSERT_EQ(::symlink((folder_ + "/c").c_str(), path("b").c_str()), 0);
  for (const char* text : {"to a free name", "to a file"}) {
    ASSERT_TRUE(write_file(path("a"), text).ok());
    EXPECT_TRUE(fs::is_symlink(path("a")) && fs::is_symlink(path("b")));
    EXPECT_EQ(read_text(path("c")), text);
  }
  ASSERT_EQ(::symlink("round", path("round").c_str()), 0);
  EXPECT_EQ(write_file(path("round"), "").code(), Code::io);
}

TEST_F(OutputFileTest, writes_through_what_is_no_file) {
  EXPECT_TRUE(OutputFile::check("/dev/null").ok());
  EXPECT_TRUE(write_file("/dev/null", "nothing").ok());
  EXPECT_TRUE(fs::is_character_file("/dev/null"));
  EXPECT_THAT(write_file("/dev/full", "much").message(), HasSubstr("/dev/full"));
  ASSERT_EQ(::mkfifo(path("pipe").c_str(), 0600), 0);
  EXPECT_TRUE(OutputFile::check(path("pipe")).ok());  // without waiting for a reader
  const Descriptor reader(::open(path("pipe").c_str(), O_RDONLY | O_NONBLOCK));
  ASSERT_TRUE(write_file(path("pipe"), "text").ok());
  char got[4] = {};
  EXPECT_EQ(::read(reader.get(), got, sizeof got), 4);
  EXPECT_TRUE(fs::is_fifo(path("pipe")));
  EXPECT_FALSE(OutputFile::is_replaced(path("pipe")));
  EXPECT_TRUE(OutputFile::is_replaced(path("free")));
}

TEST_F(OutputFileTest, goes_on_where_an_own_descriptor_stands) {
  const Descriptor own(::open(path("x").c_str(), O_WRONLY | O_CREAT, 0600));
  ASSERT_EQ(::write(own.get(), "one ", 4), 4);
  ASSERT_TRUE(write_file("/dev/fd/" + std::to_string(own.get()), "two").ok());
  EXPECT_EQ(read_text(path("x")), "one two");
}

TEST_F(OutputFileTest, is_checked_beforehand_without_a_trace) {
  EXPECT_TRUE(OutputFile::check(path("x")).ok());
  EXPECT_EQ(files(), 0u);
  for (const std::string& wrong :
       {path("none/x"), folder_, path("x/"), std::string(), folder_ + "/",
        std::string("/proc/none"), path(std::string(300, 'x'))}) {
    const Status status = OutputFile::check(wrong);
    EXPECT_EQ(status.code(), Code::invalid_argument) << wrong;
    EXPECT_THAT(status.message(), HasSubstr("cannot be written")) << wrong;
    EXPECT_EQ(write_file(wrong, "").code(), Code::io) << wrong;
  }
  EXPECT_THAT(OutputFile::check(path("none/x")).message(), HasSubstr("no folder " + path("none")));
  EXPECT_EQ(files(), 0u);
}

}  // namespace
}  // namespace tutti
