#include "core/secret.hpp"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include "core/sockets.hpp"

namespace tutti {
namespace {

using testing::HasSubstr;

const std::string kKnown(32, 'k');

TEST(secret, what_a_wiped_string_held_is_gone) {
  std::string text = kKnown;
  const char* where = text.data();
  wipe(text);
  EXPECT_TRUE(text.empty());
  EXPECT_EQ(std::string(where, kKnown.size()), std::string(kKnown.size(), '\0'));
}

TEST(secret, moving_leaves_nothing_behind) {
  Secret from = "0123456789";  // short enough to lie in the object itself
  const Secret to = std::move(from);
  EXPECT_EQ(to.text(), "0123456789");
  EXPECT_TRUE(from.empty());
}

TEST(secret, a_descriptor_is_read_twice_and_not_inherited_after_that) {
  const auto made = make_secret_descriptor(kKnown);
  ASSERT_TRUE(made.ok());
  const Descriptor descriptor(*made);
  ASSERT_EQ(::fcntl(*made, F_SETFD, 0), 0);  // as a launcher hands it on
  for (int time = 0; time < 2; ++time) {
    const auto secret = read_secret_descriptor(*made);
    ASSERT_TRUE(secret.ok()) << secret.status().to_string();
    EXPECT_EQ(secret->text(), kKnown);
    EXPECT_EQ(::fcntl(*made, F_GETFD), FD_CLOEXEC);
  }
}

// A program between the launcher and the rank closed it, and another file has its number.
TEST(secret, another_file_under_its_number_is_not_taken_for_it) {
  const Descriptor other(::open("/dev/zero", O_RDONLY | O_CLOEXEC));
  const auto secret = read_secret_descriptor(other.get());
  EXPECT_EQ(secret.status().code(), Code::io);
  EXPECT_THAT(secret.status().message(), HasSubstr("another file"));
  EXPECT_THAT(read_secret_descriptor(999).status().message(), HasSubstr("closed"));
}

TEST(secret, fewer_than_sixteen_bytes_are_refused) {
  EXPECT_TRUE(check_secret(std::string(16, 'x')).ok());
  EXPECT_THAT(check_secret(std::string(15, 'x')).message(), HasSubstr("15 bytes is too short"));
  EXPECT_THAT(check_secret("").message(), HasSubstr("no secret"));
}

}  // namespace
}  // namespace tutti
