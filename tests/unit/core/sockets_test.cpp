#include "core/sockets.hpp"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <sys/stat.h>
#include <unistd.h>

#include <thread>

namespace tutti {
namespace {

Nanoseconds soon() { return steady_clock().now() + std::chrono::seconds(30); }
Nanoseconds at_once() { return steady_clock().now(); }

TEST(sockets, addresses_read_back_as_they_were_written) {
  for (const char* text : {"127.0.0.1:80", "[::1]:8080", "@some-name", "10.1.2.3:0"}) {
    auto address = SocketAddress::parse(text);
    ASSERT_TRUE(address.ok()) << address.status().to_string();
    EXPECT_EQ(address->to_string(), text);
  }
  EXPECT_TRUE(SocketAddress::parse("@x")->is_local());
  EXPECT_EQ(SocketAddress::parse("@" + std::string(108, 'x')).status().code(),
            Code::invalid_argument);
  EXPECT_EQ(SocketAddress::parse("1.2.3.4:99999").status().code(), Code::invalid_argument);
}

// Both ends of a connection at `text`, whatever its family.
void expect_a_conversation(const std::string& text) {
  auto listener = listen_on(*SocketAddress::parse(text));
  ASSERT_TRUE(listener.ok()) << listener.status().to_string();
  EXPECT_FALSE(*accept_from(listener->get())) << "nobody is there yet";
  auto client = connect_to(*local_address(listener->get()), soon());
  ASSERT_TRUE(client.ok()) << client.status().to_string();
  ASSERT_TRUE(*wait_ready(listener->get(), POLLIN, soon()));
  auto server = accept_from(listener->get());
  ASSERT_TRUE(server.ok() && *server);

  // More than the socket's buffers hold, so that both sides have to wait for each other.
  const std::string sent(8 << 20, 'x');
  std::thread writer([&] {
    EXPECT_TRUE(write_fully(client->get(), sent.data(), sent.size(), soon()).ok());
    client->reset();
  });
  std::string got(sent.size(), '\0');
  EXPECT_TRUE(read_fully(server->get(), got.data(), got.size(), soon()).ok());
  EXPECT_TRUE(got == sent);
  writer.join();
  EXPECT_EQ(read_fully(server->get(), got.data(), 1, soon()).code(), Code::io) << "the end";
}

TEST(sockets, bytes_go_through_tcp) { expect_a_conversation("127.0.0.1:0"); }
TEST(sockets, bytes_go_through_an_abstract_unix_socket) {
  expect_a_conversation("@tutti-sockets-" + std::to_string(::getpid()));
}
TEST(sockets, bytes_go_through_tcp_over_ipv6) {
  if (!listen_on(*SocketAddress::parse("[::1]:0")).ok()) GTEST_SKIP() << "no IPv6 here";
  expect_a_conversation("[::1]:0");
}

TEST(sockets, reading_and_writing_end_at_the_deadline) {
  int pair[2];
  ASSERT_EQ(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair), 0);
  Descriptor a(pair[0]), b(pair[1]);
  char byte = 0;
  EXPECT_EQ(read_fully(a.get(), &byte, 1, at_once()).code(), Code::timed_out);
  const std::string much(64 << 20, 'x');
  const auto deadline = steady_clock().now() + std::chrono::milliseconds(30);
  EXPECT_EQ(write_fully(a.get(), much.data(), much.size(), deadline).code(), Code::timed_out);
  b.reset();
  EXPECT_EQ(write_fully(a.get(), &byte, 1, soon()).code(), Code::io) << "a Status, not SIGPIPE";
}

TEST(sockets, connecting_to_nobody_is_refused_with_the_address) {
  auto listener = listen_on(*SocketAddress::parse("127.0.0.1:0"));
  const SocketAddress address = *local_address(listener->get());
  listener->reset();
  auto socket = connect_to(address, soon());
  ASSERT_FALSE(socket.ok());
  EXPECT_EQ(socket.status().code(), Code::io);
  EXPECT_THAT(socket.status().message(), testing::HasSubstr(address.to_string()));
}

TEST(sockets, the_other_end_of_a_unix_socket_is_known) {
  int pair[2];
  ASSERT_EQ(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair), 0);
  Descriptor a(pair[0]), b(pair[1]);
  EXPECT_EQ(peer_credentials(a.get())->uid, ::geteuid());
  EXPECT_EQ(peer_credentials(a.get())->pid, ::getpid());
}

TEST(sockets, a_descriptor_closes_once_and_moves) {
  int pipe[2];
  ASSERT_EQ(::pipe2(pipe, O_CLOEXEC), 0);
  Descriptor writer(pipe[1]);
  Descriptor first(pipe[0]);
  Descriptor second(std::move(first));
  EXPECT_FALSE(first);
  EXPECT_EQ(second.get(), pipe[0]);
  second.reset();
  EXPECT_EQ(::fcntl(pipe[0], F_GETFD), -1);
}

}  // namespace
}  // namespace tutti
