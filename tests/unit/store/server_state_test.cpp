// The store's server in virtual time: no sockets, no threads.
#include "store/server_state.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <malloc.h>

#include <random>

namespace tutti::store {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

// One client's end of a connection, by hand.
class Client {
 public:
  Client(ServerState& state, ConnectionId id, Nanoseconds now, std::string_view secret = "secret")
      : state_(state), id_(id), handshake_(Handshake::client(secret, {.role = kRoleStore})) {
    state_.connected(id_, "friend", now);
  }

  Status join(Nanoseconds now) {
    while (true) {
      state_.received(id_, handshake_.take_output(), now);
      if (handshake_.done()) return {};
      const std::string answer = state_.take_output(id_);
      if (answer.empty()) return Status(Code::io, "no answer");
      if (Status status = handshake_.feed(answer); !status.ok()) return status;
    }
  }

  void send(const StoreRequest& request, Nanoseconds now) {
    state_.received(id_, request.encode(), now);
  }

  // The response, if there is one.
  std::optional<Response> receive() {
    const std::string bytes = state_.take_output(id_);
    if (bytes.empty()) return std::nullopt;
    EXPECT_EQ(*frame_length(bytes) + kLengthBytes, bytes.size());
    return *Response::decode(std::string_view(bytes).substr(kLengthBytes));
  }

 private:
  ServerState& state_;
  ConnectionId id_;
  Handshake handshake_;
};

StoreRequest set(const std::string& key, const std::string& value) {
  return {RequestKind::set, 0, key, value, {}};
}
StoreRequest get(const std::string& key, milliseconds timeout) {
  return {RequestKind::get, timeout.count(), key, {}, {}};
}

TEST(server_state, a_parked_get_is_answered_by_a_set) {
  ServerState state("secret");
  Client a(state, 2, {}), b(state, 3, {});
  ASSERT_TRUE(a.join({}).ok());
  ASSERT_TRUE(b.join({}).ok());
  (void)state.take_active();
  a.send(get("key", milliseconds(1000)), {});
  EXPECT_FALSE(a.receive());
  b.send(set("key", "value"), milliseconds(999));
  EXPECT_EQ(b.receive()->code, Code::ok);
  EXPECT_EQ(a.receive()->text, "value");
  EXPECT_EQ(state.take_active(), (std::vector<ConnectionId>{2, 3}));
  EXPECT_EQ(state.next_deadline(), Nanoseconds::max());
}

TEST(server_state, a_parked_get_ends_at_its_deadline_by_the_clock_it_is_given) {
  ServerState state("secret");
  Client a(state, 2, {});
  ASSERT_TRUE(a.join({}).ok());
  a.send(get("key", milliseconds(1000)), seconds(5));
  EXPECT_EQ(state.next_deadline(), seconds(6));
  state.advance(seconds(6) - Nanoseconds(1));
  EXPECT_FALSE(a.receive());
  state.advance(seconds(6));
  const auto response = a.receive();
  ASSERT_TRUE(response);
  EXPECT_EQ(response->code, Code::timed_out);
  EXPECT_THAT(response->text, testing::HasSubstr("key"));
  // The connection goes on.
  a.send(set("key", "late"), seconds(7));
  EXPECT_EQ(a.receive()->code, Code::ok);
}

TEST(server_state, whoever_says_nothing_is_ended_after_five_seconds) {
  ServerState state("secret");
  state.connected(2, "stranger", seconds(1));
  state.advance(seconds(6) - Nanoseconds(1));
  EXPECT_FALSE(state.ended(2));
  EXPECT_EQ(state.next_deadline(), seconds(6));
  state.advance(seconds(6));
  EXPECT_TRUE(state.ended(2));
  EXPECT_EQ(state.take_active(), std::vector<ConnectionId>{2});
  state.disconnected(2);
  EXPECT_EQ(state.connections(), 0u);
  EXPECT_EQ(state.next_deadline(), Nanoseconds::max());
}

TEST(server_state, strangers_have_a_bounded_number_of_places_and_press_upon_each_other) {
  ServerState state("secret");
  Client real(state, 1, {});
  ASSERT_TRUE(real.join({}).ok());
  // It has said hello; its proof is on the way.
  state.connected(2, "friend", {});
  state.received(2, Handshake::client("secret", {.role = kRoleStore}).take_output(), {});
  const ConnectionId end = 3 + 10 * ServerState::kMaxStrangers;
  for (ConnectionId id = 3; id < end; ++id) {
    state.connected(id, "stranger", {});
    EXPECT_LE(state.strangers(), ServerState::kMaxStrangers);
  }
  EXPECT_FALSE(state.ended(2));
  EXPECT_TRUE(state.ended(3));
  EXPECT_FALSE(state.ended(end - 1));
  const auto refusals = state.take_refusals();
  EXPECT_EQ(refusals.size(), 1 + 9 * ServerState::kMaxStrangers);
  EXPECT_EQ(refusals.front().address, "stranger");
  real.send(set("a", "b"), {});
  EXPECT_EQ(real.receive()->code, Code::ok);
}

TEST(server_state, whoever_is_turned_away_is_named_with_the_reason) {
  ServerState state("secret", 7);
  Client wrong(state, 2, {}, "guess");
  EXPECT_FALSE(wrong.join({}).ok());
  state.connected(3, "browser", {});
  state.received(3, std::string(56, 'G'), {});
  state.connected(4, "silent", {});
  state.advance(kHandshakeTimeout);
  const auto refusals = state.take_refusals();
  ASSERT_EQ(refusals.size(), 3u);
  EXPECT_EQ(refusals[0].address, "friend");
  EXPECT_THAT(refusals[0].why, testing::HasSubstr("secret"));
  EXPECT_EQ(refusals[1].address, "browser");
  EXPECT_THAT(refusals[1].why, testing::HasSubstr("protocol"));
  EXPECT_EQ(refusals[2].address, "silent");
  EXPECT_THAT(refusals[2].why, testing::HasSubstr("5 s"));
}

// All that is held for one who has said as much as he can without a proof.
TEST(server_state, a_stranger_costs_less_than_four_kilobytes) {
  ServerState state("a secret of some length, as jobs have them");
  const auto in_use = [] { return ::mallinfo2().uordblks; };
  const std::size_t before = in_use();
  for (ConnectionId id = 2; id < 2 + ServerState::kMaxStrangers; ++id) {
    state.connected(id, "2001:db8:ffff:ffff:ffff:ffff:ffff:ffff", {});
    const auto hello = Handshake::client("another", {.role = kRoleStore}).take_output();
    state.received(id, hello + std::string(31, 'p'), {});
  }
  EXPECT_LT((in_use() - before) / ServerState::kMaxStrangers, ServerState::kStrangerBytes);
}

TEST(server_state, a_wrong_secret_gets_nowhere) {
  ServerState state("secret");
  Client wrong(state, 2, {}, "guess");
  EXPECT_EQ(wrong.join({}).code(), Code::corrupt);
  // And if it goes on as if nothing were wrong:
  state.received(2, std::string(32, 'p') + set("a", "b").encode(), {});
  EXPECT_TRUE(state.ended(2));
  Client right(state, 3, {});
  ASSERT_TRUE(right.join({}).ok());
  right.send(get("a", milliseconds(0)), {});
  state.advance({});
  EXPECT_EQ(right.receive()->code, Code::timed_out);
}

TEST(server_state, bytes_may_come_one_by_one) {
  ServerState state("secret");
  state.connected(2, "stranger", {});
  Handshake handshake = Handshake::client("secret", {.role = kRoleStore});
  for (char byte : handshake.take_output()) state.received(2, {&byte, 1}, {});
  for (char byte : state.take_output(2)) ASSERT_TRUE(handshake.feed({&byte, 1}).ok());
  const std::string rest = handshake.take_output() + set("slow", "but sure").encode();
  for (char byte : rest) state.received(2, {&byte, 1}, {});
  const std::string answer = state.take_output(2);
  ASSERT_TRUE(handshake.feed(std::string_view(answer).substr(0, handshake.wants())).ok());
  EXPECT_TRUE(handshake.done());
  EXPECT_GT(answer.size(), 32u);
  EXPECT_EQ(state.strangers(), 0u);
}

TEST(server_state, a_length_over_the_bound_ends_even_a_friend) {
  ServerState state("secret");
  Client a(state, 2, {});
  ASSERT_TRUE(a.join({}).ok());
  state.received(2, std::string("\xff\xff\xff\x7f", 4), {});
  EXPECT_TRUE(state.ended(2));
}

TEST(server_state, garbage_never_gets_past_the_handshake_or_breaks_the_server) {
  std::mt19937 random(7);
  ServerState state("secret");
  Client real(state, 2, {});
  ASSERT_TRUE(real.join({}).ok());
  for (ConnectionId id = 3; id < 500; ++id) {
    state.connected(id, "stranger", {});
    // Half of them know the first words of the protocol.
    std::string bytes = id % 2 ? std::string("TUTI\1\0\0\0", 8) : std::string();
    for (unsigned n = random() % 400; n > 0; --n) bytes += static_cast<char>(random());
    state.received(id, bytes, {});
    EXPECT_LE(state.take_output(id).size(), 88u);
    state.disconnected(id);
  }
  EXPECT_EQ(state.connections(), 1u);
  EXPECT_EQ(state.strangers(), 0u);
  real.send(set("a", "b"), {});
  EXPECT_EQ(real.receive()->code, Code::ok);
}

TEST(server_state, whoever_leaves_while_waiting_leaves_nothing) {
  ServerState state("secret");
  Client a(state, 2, {}), b(state, 3, {});
  ASSERT_TRUE(a.join({}).ok());
  ASSERT_TRUE(b.join({}).ok());
  a.send(get("key", seconds(10)), {});
  state.disconnected(2);
  EXPECT_EQ(state.next_deadline(), Nanoseconds::max());
  b.send(set("key", "v"), {});
  EXPECT_EQ(b.receive()->code, Code::ok);
}

TEST(protocol, what_encode_makes_decode_reads_and_every_cut_is_refused) {
  const StoreRequest request{RequestKind::compare_set, -5, "key", std::string("v\0w", 3),
                             "expected"};
  const std::string body = request.encode().substr(kLengthBytes);
  const auto back = StoreRequest::decode(body);
  ASSERT_TRUE(back.ok());
  EXPECT_EQ(back->kind, request.kind);
  EXPECT_EQ(back->number, -5);
  EXPECT_EQ(back->value, request.value);
  EXPECT_EQ(back->expected, "expected");
  for (std::size_t cut = 0; cut < body.size(); ++cut)
    EXPECT_EQ(StoreRequest::decode(body.substr(0, cut)).status().code(), Code::corrupt) << cut;
  EXPECT_EQ(StoreRequest::decode(body + "x").status().code(), Code::corrupt);
}

}  // namespace
}  // namespace tutti::store
