#include "transport/tcp/socket_options.hpp"

#include <gtest/gtest.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cstring>

namespace tutti::transport {
namespace {

std::string congestion_control_of(int socket) {
  char name[16] = {};
  socklen_t size = sizeof name;
  if (::getsockopt(socket, IPPROTO_TCP, TCP_CONGESTION, name, &size) != 0) return "?";
  return {name, ::strnlen(name, sizeof name)};
}

TEST(socket_options, bbr_gives_way_unless_it_was_asked_for) {
  const int socket = ::socket(AF_INET, SOCK_STREAM, 0);
  ASSERT_GE(socket, 0);
  const std::string before = congestion_control_of(socket);
  EXPECT_TRUE(choose_congestion_control(socket, "system"));
  EXPECT_EQ(congestion_control_of(socket), before);
  EXPECT_TRUE(choose_congestion_control(socket, "auto"));
  const std::string after = congestion_control_of(socket);
  EXPECT_TRUE(before == "bbr" || after == before) << after;
  EXPECT_TRUE(choose_congestion_control(socket, "reno"));  // every kernel has it
  EXPECT_EQ(congestion_control_of(socket), "reno");
  EXPECT_FALSE(choose_congestion_control(socket, "pigeon"));
  ::close(socket);
}

// Whoever may: root may always.
TEST(socket_options, the_card_is_asked_for_as_long_as_was_wanted) {
  const int socket = ::socket(AF_INET, SOCK_STREAM, 0);
  ASSERT_GE(socket, 0);
  const auto wanted = [socket] {
    int microseconds = -1;
    socklen_t size = sizeof microseconds;
    ::getsockopt(socket, SOL_SOCKET, SO_BUSY_POLL, &microseconds, &size);
    return microseconds;
  };
  const int before = wanted();
  EXPECT_TRUE(poll_busily(socket, 0));
  EXPECT_EQ(wanted(), before);
  const bool may = poll_busily(socket, before + 40);
  EXPECT_EQ(wanted(), may ? before + 40 : before);
  ::close(socket);
}

}  // namespace
}  // namespace tutti::transport
