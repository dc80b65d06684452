// Whoever connects and sends anything but a proof that he knows the secret changes nothing.
#include <arpa/inet.h>
#include <dirent.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <random>
#include <thread>

#include "support/children.hpp"
#include "support/trial.hpp"

namespace tutti::test {
namespace {

// Where this process listens: its descriptors tell.
std::vector<sockaddr_in> listening_addresses() {
  std::vector<sockaddr_in> addresses;
  for (int descriptor = 0; descriptor < 1024; ++descriptor) {
    int listening = 0;
    socklen_t length = sizeof listening;
    sockaddr_in where{};
    socklen_t size = sizeof where;
    if (getsockopt(descriptor, SOL_SOCKET, SO_ACCEPTCONN, &listening, &length) == 0 && listening &&
        getsockname(descriptor, reinterpret_cast<sockaddr*>(&where), &size) == 0 &&
        where.sin_family == AF_INET)
      addresses.push_back(where);
  }
  return addresses;
}

std::vector<std::string> provocations() {
  std::mt19937_64 random(7);
  std::string noise(100'000, '\0');
  for (char& letter : noise) letter = static_cast<char>(random());
  return {"",
          "GET / HTTP/1.1\r\nHost: localhost\r\n\r\n",
          noise,
          std::string(64, '\xFF'),
          std::string(10, '\0'),
          std::string(1 << 20, '\x7F')};
}

// The connections stay open until the end of the test: a stranger need not be so kind as to leave.
std::vector<int> provoke(const sockaddr_in& where) {
  std::vector<int> connections;
  for (int round = 0; round < 3; ++round)
    for (const std::string& text : provocations()) {
      const int connection = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
      if (connect(connection, reinterpret_cast<const sockaddr*>(&where), sizeof where) == 0)
        (void)!send(connection, text.data(), text.size(), MSG_NOSIGNAL | MSG_DONTWAIT);
      connections.push_back(connection);
    }
  return connections;
}

GroupOptions options_for(int rank) {
  GroupOptions options;
  options.rank = rank;
  options.size = 2;
  options.secret = "known to two ranks";
  options.config = Config{};
  options.config->transport = "tcp";
  options.config->join_timeout = std::chrono::seconds(30);
  return options;
}

void live_with_rank(std::shared_ptr<Store> store, int rank) {
  auto group = Group::create(std::move(store), options_for(rank));
  ASSERT_TRUE(group.ok()) << group.status().to_string();
  for (std::size_t count : {1, 100'003}) try_out(**group, {.count = count});
}

// Rank 0 listens, strangers come, and only then rank 1.
void join_among_strangers() {
  const std::string secret = "known to two ranks";
  auto server = StoreServer::listen("127.0.0.1:0", secret);
  ASSERT_TRUE(server.ok()) << server.status().to_string();
  auto store = connect_store((*server)->address(), secret, std::chrono::seconds(10));
  ASSERT_TRUE(store.ok()) << store.status().to_string();
  std::thread rank_0([&] { live_with_rank(*store, 0); });
  // The store's own socket is there already; the group's is the second.
  std::vector<sockaddr_in> addresses;
  const auto patience = std::chrono::steady_clock::now() + std::chrono::seconds(20);
  while (addresses.size() < 2 && std::chrono::steady_clock::now() < patience) {
    addresses = listening_addresses();
    std::this_thread::yield();
  }
  EXPECT_GE(addresses.size(), 2U) << "rank 0 does not listen";
  std::vector<int> strangers;
  for (const sockaddr_in& where : addresses) {
    EXPECT_NE(where.sin_addr.s_addr, htonl(INADDR_ANY)) << "listens for all the world";
    for (int connection : provoke(where)) strangers.push_back(connection);
  }
  auto again = connect_store((*server)->address(), secret, std::chrono::seconds(20));
  EXPECT_TRUE(again.ok()) << again.status().to_string();
  live_with_rank(*store, 1);
  rank_0.join();
  for (int connection : strangers) close(connection);
}

void run_alone(const std::function<void()>& life) {
  Children children(std::chrono::seconds(60), {});
  children.fork({0}, life);
  for (const Failure& failure : children.wait())
    ADD_FAILURE_AT(failure.file.c_str(), failure.line) << failure.text;
}

TEST(Strangers, who_connect_and_send_anything_change_nothing) { run_alone(join_among_strangers); }

TEST(Strangers, with_another_secret_do_not_get_in) {
  run_alone([] {
    auto server = StoreServer::listen("127.0.0.1:0", "the right secret");
    ASSERT_TRUE(server.ok()) << server.status().to_string();
    const auto store =
        connect_store((*server)->address(), "the wrong secret", std::chrono::seconds(2));
    EXPECT_FALSE(store.ok());
    const auto right =
        connect_store((*server)->address(), "the right secret", std::chrono::seconds(10));
    EXPECT_TRUE(right.ok()) << right.status().to_string();
  });
}

TEST(Strangers, who_join_with_another_secret_are_not_linked) {
  run_alone([] {
    auto store = make_memory_store();
    const auto join = [&](int rank, const char* secret) {
      GroupOptions options = options_for(rank);
      options.secret = secret;
      options.config->join_timeout = std::chrono::seconds(2);
      return Group::create(store, options).status();
    };
    Status first;
    std::thread rank_0([&] { first = join(0, "the right secret"); });
    const Status second = join(1, "the wrong secret");
    rank_0.join();
    EXPECT_FALSE(first.ok());
    EXPECT_FALSE(second.ok());
  });
}

}  // namespace
}  // namespace tutti::test
