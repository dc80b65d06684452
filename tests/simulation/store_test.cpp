// The store's server and the handshake in virtual time: clients that speak in bits and pieces, break
// off, come without the secret or talk nonsense. Every call ends by its deadline with what the others
// did, or with an error.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <deque>
#include <map>
#include <random>
#include <set>

#include "core/auth.hpp"
#include "simulation/seeds.hpp"
#include "store/protocol.hpp"
#include "store/server_state.hpp"

namespace tutti::simulation {
namespace {

using namespace std::chrono_literals;
using store::ConnectionId;
using store::RequestKind;
using store::Response;
using store::ServerState;
using store::StoreRequest;

constexpr const char* kSecret = "the secret of this job, thirty-two bytes";

// A client's end of a connection: its handshake, then one request after the other.
class Client {
 public:
  enum class Kind { honest, wrong_secret, babbler, silent };

  Client(Kind kind, int number, std::mt19937_64& random)
      : kind_(kind),
        number_(number),
        random_(random),
        handshake_(Handshake::client(kind == Kind::wrong_secret ? "another secret" : kSecret,
                                     {kRoleStore, number, 0})) {
    if (kind != Kind::silent) outbox_ = handshake_.take_output();
    if (kind == Kind::babbler) {
      outbox_.resize(1 + random_() % 300);
      for (char& letter : outbox_) letter = static_cast<char>(random_());
    }
  }

  Kind kind() const { return kind_; }
  bool is_let_in() const { return let_in_; }
  bool is_waiting() const { return asked_.has_value(); }
  const StoreRequest& asked() const { return *asked_; }
  Nanoseconds asked_at() const { return asked_at_; }

  // Some bytes for the server; empty when there are none.
  std::string speak() {
    if (outbox_.empty()) return {};
    const std::size_t bytes = std::min<std::size_t>(outbox_.size(), 1 + random_() % 40);
    const std::string piece = outbox_.substr(0, bytes);
    outbox_.erase(0, bytes);
    return piece;
  }
  void ask(const StoreRequest& request, Nanoseconds now) {
    asked_ = request;
    asked_at_ = now;
    outbox_ += request.encode();
  }
  // What the server said. The response, when one is whole.
  std::optional<Response> hear(std::string_view bytes) {
    inbox_ += bytes;
    if (!let_in_ && kind_ == Kind::honest) {
      const std::size_t wants = std::min(handshake_.wants(), inbox_.size());
      EXPECT_TRUE(handshake_.feed(std::string_view(inbox_).substr(0, wants)).ok());
      inbox_.erase(0, wants);
      outbox_ += handshake_.take_output();
      let_in_ = handshake_.done();
    }
    if (!let_in_ || inbox_.size() < store::kLengthBytes) return {};
    const auto length = store::frame_length(inbox_);
    EXPECT_TRUE(length.ok());
    if (!length.ok() || inbox_.size() < store::kLengthBytes + *length) return {};
    auto response = Response::decode(std::string_view(inbox_).substr(store::kLengthBytes, *length));
    EXPECT_TRUE(response.ok());
    inbox_.erase(0, store::kLengthBytes + *length);
    asked_.reset();
    return *response;
  }
  int number() const { return number_; }

 private:
  Kind kind_;
  int number_;
  std::mt19937_64& random_;
  Handshake handshake_;
  bool let_in_ = false;
  std::string inbox_, outbox_;
  std::optional<StoreRequest> asked_;
  Nanoseconds asked_at_{0};
};

// The server, its clients, and what is promised of them.
class StoreWorld {
 public:
  explicit StoreWorld(std::uint64_t seed) : random_(seed), server_(kSecret) {}

  void run() {
    for (int round = 0; round < 4000 && !::testing::Test::HasFailure(); ++round) {
      now_ += Nanoseconds(random_() % 2'000'000);
      if (clients_.size() < 40 && random_() % 10 == 0) connect();
      for (auto& [id, client] : clients_) step(id, client);
      drop_some();
      server_.advance(now_);
      deliver();
      check_deadlines();
    }
    EXPECT_GT(answers_, 100) << "too little happened to prove anything";
  }

 private:
  void connect() {
    static constexpr Client::Kind kKinds[] = {Client::Kind::honest,  Client::Kind::honest,
                                              Client::Kind::honest,  Client::Kind::wrong_secret,
                                              Client::Kind::babbler, Client::Kind::silent};
    const ConnectionId id = next_++;
    clients_.emplace(id,
                     Client(kKinds[random_() % std::size(kKinds)], static_cast<int>(id), random_));
    server_.connected(id, fmt::format("host {}", id % 3), now_);
  }

  void step(ConnectionId id, Client& client) {
    if (client.is_let_in() && !client.is_waiting() && random_() % 3 == 0)
      client.ask(random_request(client), now_);
    if (random_() % 2 == 0)
      if (const std::string bytes = client.speak(); !bytes.empty())
        server_.received(id, bytes, now_);
  }

  StoreRequest random_request(const Client& client) {
    StoreRequest request;
    request.key = fmt::format("key{}", random_() % 6);
    switch (random_() % 6) {
      case 0:
        request.kind = RequestKind::set;
        request.value = fmt::format("{}/{}", client.number(), ++values_);
        written_[request.key].insert(request.value);
        break;
      case 1:
      case 2:
        request.kind = random_() % 2 == 0 ? RequestKind::get : RequestKind::wait;
        request.number = static_cast<std::int64_t>(random_() % 50);
        break;
      case 3:
        request.kind = RequestKind::add;
        request.key = "counter";
        request.number = 1;
        break;
      case 4:
        request.kind = RequestKind::compare_set;
        request.key = fmt::format("prize{}", random_() % 20);
        request.value = fmt::format("{}", client.number());
        break;
      default: request.kind = RequestKind::remove; break;
    }
    return request;
  }

  // Connections break at any moment.
  void drop_some() {
    for (auto at = clients_.begin(); at != clients_.end();) {
      const bool drop = random_() % 400 == 0 || server_.ended(at->first);
      if (drop) server_.disconnected(at->first);
      at = drop ? clients_.erase(at) : std::next(at);
    }
  }

  void deliver() {
    for (const ConnectionId id : server_.take_active()) {
      const auto at = clients_.find(id);
      if (at == clients_.end()) continue;
      Client& client = at->second;
      const std::optional<StoreRequest> asked =
          client.is_waiting() ? std::optional(client.asked()) : std::nullopt;
      if (auto response = client.hear(server_.take_output(id))) {
        ASSERT_TRUE(asked) << "an answer to nobody's question";
        judge(*asked, *response);
      }
    }
    for (const auto& [id, client] : clients_)
      if (client.kind() != Client::Kind::honest) {
        EXPECT_FALSE(client.is_let_in());
      }
  }

  void judge(const StoreRequest& asked, const Response& response) {
    ++answers_;
    switch (asked.kind) {
      case RequestKind::get:
      case RequestKind::wait:
        if (response.code == Code::ok && asked.kind == RequestKind::get) {
          EXPECT_EQ(written_[asked.key].count(response.text), 1u)
              << "nobody wrote " << response.text;
        }
        break;
      case RequestKind::add:
        // Everybody gets another sum, and none is left out for ever: the last is how many there were.
        EXPECT_TRUE(sums_.insert(response.number).second) << "the same sum twice";
        break;
      case RequestKind::compare_set: {
        const auto [winner, first] = winners_.emplace(asked.key, response.text);
        EXPECT_EQ(winner->second, response.text) << "two winners of " << asked.key;
        break;
      }
      case RequestKind::set: EXPECT_EQ(response.code, Code::ok); break;
      case RequestKind::remove: break;
    }
  }

  // A wait ends when it said that it would, or a little later; all else at once.
  void check_deadlines() {
    for (const auto& [id, client] : clients_) {
      if (!client.is_waiting()) continue;
      const auto limit = std::chrono::milliseconds(client.asked().number);
      EXPECT_LT(now_ - client.asked_at(), limit + 2s) << "a call has not ended";
    }
  }

  std::mt19937_64 random_;
  ServerState server_;
  Nanoseconds now_{0};
  ConnectionId next_ = 1;
  std::map<ConnectionId, Client> clients_;
  int values_ = 0;
  int answers_ = 0;
  std::map<std::string, std::set<std::string>> written_;
  std::set<std::int64_t> sums_;
  std::map<std::string, std::string> winners_;
};

TEST(StoreSimulation, every_call_ends_with_what_the_others_did) {
  for (const std::uint64_t seed : seeds("store", 16)) {
    SCOPED_TRACE("TUTTI_SEED=" + std::to_string(seed));
    StoreWorld(seed).run();
    if (HasFailure()) return;
  }
}

// Two ends whose bytes arrive in pieces, and now and then wrong, repeated or of another handshake.
// Neither ends believing the other unless both have the secret and every byte came through.
TEST(HandshakeSimulation, nobody_is_believed_who_does_not_know_the_secret) {
  std::size_t done = 0;
  const auto chosen = seeds("handshake", 400);
  for (const std::uint64_t seed : chosen) {
    SCOPED_TRACE("TUTTI_SEED=" + std::to_string(seed));
    std::mt19937_64 random(seed);
    const bool same_secret = random() % 2 == 0;
    const bool same_epoch = random() % 4 != 0;
    int damage = random() % 3 == 0 ? 1 : 0;
    const bool damaged = damage > 0;
    std::string replayed;
    if (random() % 4 == 0) {
      auto earlier = Handshake::client(kSecret, {kRoleData, 1, 7});
      replayed = earlier.take_output();
    }
    const bool replays = !replayed.empty();
    auto client = Handshake::client(kSecret, {kRoleData, 1, 7});
    auto server = Handshake::server(same_secret ? kSecret : "another secret",
                                    {kRoleData, 0, same_epoch ? 7u : 8u});
    std::string to_server = client.take_output();
    if (replays) to_server = replayed;
    std::string to_client;
    bool refused = false;
    bool damaged_last = false;  // the server's proof: by then it has rightly let the client in
    for (int step = 0; step < 400 && !refused; ++step) {
      std::string& from = random() % 2 == 0 ? to_server : to_client;
      Handshake& to = &from == &to_server ? server : client;
      std::size_t bytes = std::min<std::size_t>({from.size(), to.wants(), 1 + random() % 30});
      if (bytes == 0) continue;
      std::string piece = from.substr(0, bytes);
      from.erase(0, bytes);
      if (damage > 0 && random() % 6 == 0) {
        piece[random() % piece.size()] ^= static_cast<char>(1 << random() % 8);
        --damage;
        damaged_last = server.done();
      }
      refused |= !to.feed(piece).ok();
      to_client += server.take_output();
      to_server += client.take_output();
    }
    const bool was_damaged = damaged && damage == 0;
    const bool fine = same_secret && same_epoch && !was_damaged && !replays;
    EXPECT_EQ(client.done() && server.done(), fine);
    if (!fine) {
      EXPECT_FALSE(client.done()) << "the client believes a stranger";
      EXPECT_EQ(server.done(), damaged_last) << "the server believes a stranger";
    }
    done += fine;
    if (HasFailure()) return;
  }
  // One in five, as the dice above fall; half of that would be an odd chance among a hundred.
  if (chosen.size() >= 100) {
    EXPECT_GT(done, chosen.size() / 10);
  }
}

}  // namespace
}  // namespace tutti::simulation
