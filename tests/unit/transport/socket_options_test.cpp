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

}  // namespace
}  // namespace tutti::transport
