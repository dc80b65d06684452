#include "transport/memory_greeting.hpp"

#include <gtest/gtest.h>
#include <sys/socket.h>
#include <unistd.h>

namespace tutti::transport {
namespace {

// Two ranks of this process that show each other their windows over a socket.
class Meeting : public ::testing::Test {
 protected:
  Meeting() {
    int ends[2];
    EXPECT_EQ(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, ends), 0);
    for (int rank = 0; rank < 2; ++rank) {
      sockets_[rank] = Descriptor(ends[rank]);
      parties_[rank].rank = rank;
      parties_[rank].window = *Window::create(rank, WindowShape::of(2, 4096), false);
      greetings_[rank] = std::make_unique<MemoryGreeting>(
          parties_[rank], NewPeer{1 - rank, rank == 1, ::getpid()}, true);
    }
  }
  Result<bool> step(int rank) {
    return greetings_[rank]->step(ByteStreamRef(sockets_[rank].get()));
  }

  Descriptor sockets_[2];
  Party parties_[2];
  std::unique_ptr<MemoryGreeting> greetings_[2];
};

TEST_F(Meeting, each_gets_the_window_of_the_other) {
  EXPECT_FALSE(*step(0));
  EXPECT_FALSE(*step(1));
  EXPECT_TRUE(*step(0));
  EXPECT_TRUE(*step(1));
  EXPECT_EQ(greetings_[0]->take_window(), parties_[1].window);
  EXPECT_EQ(greetings_[1]->take_window(), parties_[0].window);
}

TEST_F(Meeting, given_up_midway_leaves_no_window_behind) {
  EXPECT_FALSE(*step(0));
  const std::weak_ptr<Window> window = parties_[0].window;
  greetings_[0].reset();
  parties_[0].window.reset();
  EXPECT_TRUE(window.expired());
}

TEST_F(Meeting, a_window_that_is_gone_is_not_followed) {
  EXPECT_FALSE(*step(0));
  parties_[0].window = *Window::create(0, WindowShape::of(2, 4096), false);
  EXPECT_FALSE(*step(1));  // takes the offer of a window that is no more
  const auto verdict = step(0);
  ASSERT_FALSE(verdict.ok());
  EXPECT_EQ(verdict.status().code(), Code::unsupported) << verdict.status().to_string();
}

}  // namespace
}  // namespace tutti::transport
