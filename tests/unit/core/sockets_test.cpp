#include "core/sockets.hpp"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <sched.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdlib>
#include <fstream>
#include <functional>
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

// Runs `body` in a child that has a resolver of its own: these lines as /etc/hosts, and a name server
// that never answers. 0: all was well; 77: this machine does not let us.
int with_own_resolver(const std::string& hosts, const std::function<bool()>& body) {
  const pid_t child = fork();
  if (child != 0) {
    int status = 0;
    waitpid(child, &status, 0);
    return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
  }
  const std::string folder = "/tmp/tutti-resolver-" + std::to_string(::getpid());
  const auto replace = [&](const std::string& name, const std::string& text) {
    std::ofstream(folder + "/" + name) << text;
    return mount((folder + "/" + name).c_str(), ("/etc/" + name).c_str(), nullptr, MS_BIND,
                 nullptr) == 0;
  };
  if (unshare(CLONE_NEWNET | CLONE_NEWNS) != 0 ||
      mount(nullptr, "/", nullptr, MS_REC | MS_PRIVATE, nullptr) != 0 ||
      std::system("ip link set lo up") != 0)
    _exit(77);
  mkdir(folder.c_str(), 0700);
  const int silent = ::socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
  const auto port53 = SocketAddress::parse("127.0.0.1:53");
  const bool ready =
      replace("hosts", hosts) && replace("resolv.conf", "nameserver 127.0.0.1\n") &&
      bind(silent, reinterpret_cast<const sockaddr*>(&port53->storage), port53->length) == 0;
  const int outcome = !ready ? 77 : body() ? 0 : 1;
  for (const char* name : {"hosts", "resolv.conf"}) {
    umount2((std::string("/etc/") + name).c_str(), MNT_DETACH);
    unlink((folder + "/" + name).c_str());
  }
  rmdir(folder.c_str());
  _exit(outcome);
}

TEST(sockets, all_addresses_of_a_name_are_tried) {
  const int outcome = with_own_resolver("127.0.0.9 two-faced\n127.0.0.1 two-faced\n", [] {
    auto listener = listen_on(*SocketAddress::parse("127.0.0.1:0"));
    const std::string bound = local_address(listener->get())->to_string();
    const std::string port = bound.substr(bound.rfind(':'));
    return SocketAddress::resolve("two-faced" + port, soon())->size() == 2 &&
           connect_to("two-faced" + port, soon()).ok();
  });
  if (outcome == 77) GTEST_SKIP() << "this machine does not let us make namespaces";
  EXPECT_EQ(outcome, 0);
}

TEST(sockets, a_resolver_that_does_not_answer_keeps_nobody_beyond_the_deadline) {
  const int outcome = with_own_resolver("", [] {
    const Nanoseconds began = steady_clock().now();
    const auto found = connect_to("nowhere.example:1", began + std::chrono::milliseconds(300));
    const Nanoseconds took = steady_clock().now() - began;
    std::printf("%s after %.3f s\n", found.status().to_string().c_str(), in_seconds(took));
    return found.status().code() == Code::timed_out && took < std::chrono::seconds(2);
  });
  if (outcome == 77) GTEST_SKIP() << "this machine does not let us make namespaces";
  EXPECT_EQ(outcome, 0);
}

TEST(sockets, a_full_queue_of_a_unix_socket_is_no_refusal) {
  const auto address = SocketAddress::parse("@tutti-crowded-" + std::to_string(::getpid()));
  auto listener = listen_on(*address, 0);
  ASSERT_TRUE(listener.ok());
  std::vector<Descriptor> crowd;
  Result<Dialled> next = begin_connect(*address);
  for (int i = 0; i < 100 && next.ok() && next->error == 0; ++i, next = begin_connect(*address))
    crowd.push_back(std::move(next->socket));
  ASSERT_TRUE(next.ok());
  EXPECT_EQ(next->error, EAGAIN);
  std::thread host([&] {
    for (std::size_t i = 0; i <= crowd.size(); ++i) {
      (void)wait_ready(listener->get(), POLLIN, soon());
      (void)accept_from(listener->get());
    }
  });
  EXPECT_TRUE(connect_to(*address, soon()).ok());
  host.join();
}

}  // namespace
}  // namespace tutti
