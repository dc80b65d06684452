#include "core/files.hpp"

#include <gtest/gtest.h>
#include <unistd.h>

#include <cstdio>

namespace tutti {
namespace {

TEST(Files, are_read_whole) {
  char path[] = "/tmp/tutti_files_XXXXXX";
  const int file = ::mkstemp(path);
  ASSERT_GE(file, 0);
  const std::string text(100'000, 'x');
  ASSERT_EQ(::write(file, text.data(), text.size()), static_cast<ssize_t>(text.size()));
  ::close(file);
  const auto found = read_file(path);
  ASSERT_TRUE(found.ok()) << found.status().to_string();
  EXPECT_EQ(*found, text);
  ::unlink(path);
}

TEST(Files, of_proc_are_read_though_their_size_is_zero) {
  EXPECT_EQ(first_word(read_text("/proc/self/comm")).empty(), false);
}

TEST(Files, that_are_missing_are_named_or_empty) {
  const auto found = read_file("/nowhere/at/all");
  EXPECT_EQ(found.status().code(), Code::io);
  EXPECT_NE(found.status().message().find("/nowhere/at/all"), std::string::npos);
  EXPECT_EQ(read_text("/nowhere/at/all"), "");
}

TEST(Files, without_end_are_read_up_to_a_limit) {
  const auto found = read_file("/dev/zero", 1 << 20);
  EXPECT_EQ(found.status().code(), Code::io);
  EXPECT_NE(found.status().message().find("more than 1 MiB"), std::string::npos);
}

TEST(Files, numbers_and_words_stand_between_blanks) {
  EXPECT_EQ(first_word("  one two\n"), "one");
  EXPECT_EQ(first_word(" \n"), "");
  EXPECT_EQ(first_number(" 42 kB"), 42);
  EXPECT_EQ(first_number("-1\n"), -1);
  EXPECT_EQ(first_number("max\n"), std::nullopt);
  EXPECT_EQ(first_number(""), std::nullopt);
}

TEST(Files, values_follow_their_key_at_the_beginning_of_a_line) {
  const std::string text = "MemTotal:  7 kB\nMemAvailable:   5 kB\nlast";
  EXPECT_EQ(value_after(text, "MemAvailable:"), "5 kB");
  EXPECT_EQ(value_after(text, "Available:"), std::nullopt);
  EXPECT_EQ(value_after(text, "last"), "");
}

}  // namespace
}  // namespace tutti
