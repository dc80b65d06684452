// What a store with a server promises on top: strangers, secrets, and a server that goes away.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <cstdlib>
#include <random>
#include <thread>

#include "core/sockets.hpp"
#include "tutti/store.hpp"

namespace tutti::contract {
namespace {

using std::chrono::milliseconds;
using testing::HasSubstr;

constexpr milliseconds kLong{60'000};
const std::string kSecret = "0123456789abcdef0123456789abcdef";

std::unique_ptr<StoreServer> start(const std::string& address) {
  auto server = StoreServer::listen(address, kSecret);
  EXPECT_TRUE(server.ok()) << server.status().to_string();
  return std::move(*server);
}

std::shared_ptr<Store> join(const StoreServer& server) {
  auto store = connect_store(server.address(), kSecret, kLong);
  EXPECT_TRUE(store.ok()) << store.status().to_string();
  return *store;
}

Nanoseconds soon() { return steady_clock().now() + std::chrono::seconds(30); }

Descriptor stranger(const StoreServer& server) {
  auto socket = connect_to(*SocketAddress::parse(server.address()), soon());
  EXPECT_TRUE(socket.ok()) << socket.status().to_string();
  return std::move(*socket);
}

// Whether the server hangs up on this socket.
bool is_shown_the_door(int socket) {
  char byte = 0;
  while (true) {
    const Status status = read_fully(socket, &byte, 1, soon());
    if (!status.ok()) return status.code() == Code::io;
  }
}

class ServerContract : public testing::TestWithParam<const char*> {
 protected:
  static std::string address() {
    const std::string text = GetParam();
    return text == "@" ? "@tutti-server-" + std::to_string(::getpid()) : text;
  }
  std::unique_ptr<StoreServer> server_ = start(address());

  void expect_business_as_usual() {
    auto store = join(*server_);
    EXPECT_TRUE(store->set("business", "as usual").ok());
    EXPECT_EQ(*join(*server_)->get("business", kLong), "as usual");
  }
};

TEST_P(ServerContract, a_wrong_secret_is_refused_at_once) {
  const auto start = std::chrono::steady_clock::now();
  auto store = connect_store(server_->address(), "another job's secret", kLong);
  ASSERT_FALSE(store.ok());
  EXPECT_EQ(store.status().code(), Code::corrupt);
  EXPECT_THAT(store.status().message(), HasSubstr("secret"));
  EXPECT_LT(std::chrono::steady_clock::now() - start, kLong);
  expect_business_as_usual();
}

TEST_P(ServerContract, ranks_of_another_job_are_told_so) {
  auto server = StoreServer::listen(std::string(GetParam()) == "@" ? address() + "-job" : address(),
                                    kSecret, 7);
  ASSERT_TRUE(server.ok()) << server.status().to_string();
  EXPECT_TRUE(connect_store((*server)->address(), kSecret, kLong, 7).ok());
  EXPECT_TRUE(connect_store((*server)->address(), kSecret, kLong).ok());
  const Status refused = connect_store((*server)->address(), kSecret, kLong, 8).status();
  EXPECT_EQ(refused.code(), Code::mismatch);
  EXPECT_THAT(refused.message(), HasSubstr("another job or epoch (7) than this side (8)"));
}

TEST_P(ServerContract, strangers_who_say_nothing_keep_nobody_out) {
  std::vector<Descriptor> strangers;
  for (int i = 0; i < 400; ++i) strangers.push_back(stranger(*server_));
  expect_business_as_usual();
  // There are places for 256: the first made room.
  EXPECT_TRUE(is_shown_the_door(strangers.front().get()));
}

// More connections than there are places or descriptors, while others work.
TEST_P(ServerContract, ten_thousand_connections_delay_nobody_noticeably) {
  auto store = join(*server_);
  ASSERT_TRUE(store->set("key", "value").ok());
  std::atomic<bool> over{false};
  std::thread crowd([&] {
    for (int i = 0; i < 10'000; ++i)
      (void)connect_to(*SocketAddress::parse(server_->address()), soon()).ok();
    over = true;
  });
  Nanoseconds longest{0};
  for (int calls = 0; !over; ++calls) {
    const Nanoseconds start = steady_clock().now();
    ASSERT_EQ(*store->get("key", kLong), "value");
    if (calls % 100 == 0) (void)join(*server_);
    longest = std::max(longest, steady_clock().now() - start);
  }
  crowd.join();
  EXPECT_LT(longest, std::chrono::seconds(2));
  expect_business_as_usual();
}

TEST_P(ServerContract, a_browser_is_shown_the_door) {
  auto store = join(*server_);
  const std::string request =
      "GET / HTTP/1.1\r\nHost: localhost\r\nUser-Agent: a browser, curious\r\n\r\n";
  Descriptor socket = stranger(*server_);
  ASSERT_TRUE(write_fully(socket.get(), request.data(), request.size(), soon()).ok());
  EXPECT_TRUE(is_shown_the_door(socket.get()));
  EXPECT_TRUE(store->set("a", "b").ok());
  expect_business_as_usual();
}

TEST_P(ServerContract, random_bytes_change_nothing) {
  auto store = join(*server_);
  ASSERT_TRUE(store->set("kept", "value").ok());
  std::mt19937 random(20260728);
  for (int round = 0; round < 30; ++round) {
    std::string noise(1 + random() % 5000, '\0');
    for (char& byte : noise) byte = static_cast<char>(random());
    Descriptor socket = stranger(*server_);
    // The server may hang up in the middle of it; that is fine.
    (void)write_fully(socket.get(), noise.data(), noise.size(), soon()).ok();
  }
  EXPECT_EQ(*store->get("kept", kLong), "value");
  expect_business_as_usual();
}

TEST_P(ServerContract, a_stranger_cannot_name_a_huge_length) {
  // As if the handshake were over: length 0xffffffff, then the beginning of a body.
  std::string request(4, '\xff');
  request.append(100, 'x');
  Descriptor socket = stranger(*server_);
  ASSERT_TRUE(write_fully(socket.get(), request.data(), request.size(), soon()).ok());
  EXPECT_TRUE(is_shown_the_door(socket.get()));
  expect_business_as_usual();
}

TEST_P(ServerContract, a_server_that_goes_ends_waits_and_all_later_calls_with_io) {
  auto store = join(*server_);
  std::thread waiter([&] {
    EXPECT_EQ(join(*server_)->wait("never", milliseconds(1)).code(), Code::timed_out);
    EXPECT_TRUE(store->set("waiting", "now").ok());
    auto value = store->get("never", kLong);
    EXPECT_EQ(value.status().code(), Code::io) << value.status().to_string();
  });
  ASSERT_TRUE(join(*server_)->wait("waiting", kLong).ok());
  server_.reset();
  waiter.join();
  EXPECT_EQ(store->set("a", "b").code(), Code::io);
  EXPECT_EQ(store->add("a", 1).status().code(), Code::io);
  EXPECT_EQ(store->get("a", kLong).status().code(), Code::io);
  EXPECT_THAT(store->set("a", "b").message(), HasSubstr("lost the store at"));
}

TEST_P(ServerContract, many_waits_end_at_their_own_deadlines) {
  auto store = join(*server_);
  std::vector<std::thread> waiters;
  for (int i = 0; i < 20; ++i)
    waiters.emplace_back([&, i] {
      const std::string key = "nobody " + std::to_string(i);
      const Status status = store->wait(key, milliseconds(5 * i));
      EXPECT_EQ(status.code(), Code::timed_out);
      EXPECT_THAT(status.message(), HasSubstr(key));
    });
  for (auto& waiter : waiters) waiter.join();
}

TEST_P(ServerContract, a_child_of_fork_is_refused_and_does_not_disturb_its_parent) {
  auto store = join(*server_);
  ASSERT_TRUE(store->set("parent", "1").ok());
  const pid_t child = ::fork();
  ASSERT_GE(child, 0);
  if (child == 0) ::_exit(store->set("child", "1").code() == Code::unsupported ? 0 : 1);
  int status = 0;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  EXPECT_EQ(status, 0);
  EXPECT_EQ(*store->get("parent", kLong), "1");
}

INSTANTIATE_TEST_SUITE_P(servers, ServerContract, testing::Values("127.0.0.1:0", "@"),
                         [](const auto& info) { return info.param[0] == '@' ? "unix" : "tcp"; });

TEST(store_server, a_client_waits_for_a_server_that_comes_late) {
  const std::string address = "@tutti-late-" + std::to_string(::getpid());
  std::unique_ptr<StoreServer> server;
  std::thread late([&] {
    EXPECT_EQ(connect_store(address, kSecret, milliseconds(30)).status().code(), Code::timed_out);
    server = start(address);
  });
  auto store = connect_store(address, kSecret, kLong);
  late.join();
  ASSERT_TRUE(store.ok()) << store.status().to_string();
  EXPECT_TRUE((*store)->set("a", "b").ok());
}

TEST(store_server, serves_on_a_socket_that_was_inherited) {
  auto listener = listen_on(*SocketAddress::parse("127.0.0.1:0"));
  ASSERT_TRUE(listener.ok());
  // A client may come before the server does: the socket listens already.
  std::shared_ptr<Store> early;
  const std::string address = local_address(listener->get())->to_string();
  std::thread client([&] { early = *connect_store(address, kSecret, kLong); });
  auto server = StoreServer::adopt(listener->release(), kSecret);
  ASSERT_TRUE(server.ok()) << server.status().to_string();
  EXPECT_EQ((*server)->address(), address);
  client.join();
  EXPECT_TRUE(early->set("a", "b").ok());
  EXPECT_EQ(StoreServer::adopt(STDIN_FILENO, kSecret).status().code(), Code::invalid_argument);
}

TEST(store_server, only_a_unix_socket_does_without_a_secret) {
  const std::string local = "@tutti-open-" + std::to_string(::getpid());
  auto open = StoreServer::listen(local, "");
  ASSERT_TRUE(open.ok()) << open.status().to_string();
  EXPECT_TRUE(connect_store(local, "", kLong).ok());

  for (const char* address : {"127.0.0.1:0", "0.0.0.0:0"}) {
    const Status refused = StoreServer::listen(address, "").status();
    EXPECT_EQ(refused.code(), Code::invalid_argument) << address;
    EXPECT_THAT(refused.message(), HasSubstr("there is no secret"));
  }
  auto listener = listen_on(*SocketAddress::parse("127.0.0.1:0"));
  ASSERT_TRUE(listener.ok());
  EXPECT_EQ(StoreServer::adopt(listener->release(), "").status().code(), Code::invalid_argument);

  auto server = start("127.0.0.1:0");
  EXPECT_EQ(connect_store(server->address(), "", kLong).status().code(), Code::invalid_argument);
}

TEST(store_server, a_secret_that_could_be_guessed_is_refused) {
  for (const char* address : {"127.0.0.1:0", "@tutti-guessed"}) {
    const Status refused = StoreServer::listen(address, "fifteen letters").status();
    EXPECT_EQ(refused.code(), Code::invalid_argument) << address;
    EXPECT_THAT(refused.message(), HasSubstr("a secret of 15 bytes is too short"));
    EXPECT_EQ(connect_store(address, "fifteen letters", kLong).status().code(),
              Code::invalid_argument);
  }
}

// TUTTI_TLS for as long as it lives.
struct UnderTls {
  UnderTls() { ::setenv("TUTTI_TLS", "1", 1); }
  ~UnderTls() { ::unsetenv("TUTTI_TLS"); }
};

TEST(store_server, speaks_tls_where_the_environment_says_so) {
  const UnderTls tls;
  auto server = start("127.0.0.1:0");
  auto store = join(*server);
  const std::string large(300'000, 'x');  // of many records
  ASSERT_TRUE(store->set("large", large).ok());
  EXPECT_EQ(*join(*server)->get("large", kLong), large);
  std::thread later([&] { EXPECT_TRUE(join(*server)->set("late", "value").ok()); });
  EXPECT_EQ(*store->get("late", kLong), "value");
  later.join();
  const Status wrong = connect_store(server->address(), "another job's secret", kLong).status();
  EXPECT_EQ(wrong.code(), Code::corrupt);
  EXPECT_THAT(wrong.message(), HasSubstr("secret"));
}

TEST(store_server, tls_on_one_side_alone_is_refused_at_once_and_named) {
  auto plain = start("127.0.0.1:0");
  std::unique_ptr<StoreServer> encrypted;
  {
    const UnderTls tls;
    encrypted = start("127.0.0.1:0");
    const Status status = connect_store(plain->address(), kSecret, kLong).status();
    EXPECT_EQ(status.code(), Code::mismatch) << status.to_string();
    EXPECT_THAT(status.message(), HasSubstr("does not speak TLS"));
  }
  const Status status = connect_store(encrypted->address(), kSecret, kLong).status();
  EXPECT_EQ(status.code(), Code::mismatch) << status.to_string();
  EXPECT_THAT(status.message(), HasSubstr("speaks TLS"));
}

TEST(store_server, nonsense_addresses_are_named) {
  for (const char* text : {"", "nohost", "127.0.0.1:port", "127.0.0.1:70000", "::1:80", "@"}) {
    auto store = connect_store(text, kSecret, kLong);
    EXPECT_EQ(store.status().code(), Code::invalid_argument) << text;
    EXPECT_EQ(StoreServer::listen(text, kSecret).status().code(), Code::invalid_argument) << text;
  }
}

}  // namespace
}  // namespace tutti::contract
