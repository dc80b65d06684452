#include "core/auth.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace tutti {
namespace {

using testing::HasSubstr;

constexpr Identity kClient{kRoleData, 3, 77};
constexpr Identity kServer{kRoleData, 0, 77};

std::string hex(std::string_view bytes) {
  std::string text;
  for (unsigned char byte : bytes) {
    text += "0123456789abcdef"[byte >> 4];
    text += "0123456789abcdef"[byte & 15];
  }
  return text;
}

struct Outcome {
  Status client;
  Status server;
};

// Carries messages between the two until one fails or both are done.
Outcome introduce(Handshake& client, Handshake& server) {
  Outcome outcome;
  outcome.server = server.feed(client.take_output());
  outcome.client = client.feed(server.take_output());
  if (outcome.client.ok() && outcome.server.ok()) {
    outcome.server = server.feed(client.take_output());
    outcome.client = client.feed(server.take_output());
  }
  return outcome;
}

TEST(auth, hmac_sha256_matches_rfc_4231) {
  EXPECT_EQ(hex(hmac_sha256("Jefe", "what do ya want for nothing?")),
            "5bdcc146bf60754e6a042426089575c75a003f089d2739839dec58b964ec3843");
  EXPECT_EQ(hex(hmac_sha256(std::string(20, '\x0b'), "Hi There")),
            "b0344c61d8db38535ca8afceaf0bf12b881dc200c9833da726e9376c2e32cff7");
  EXPECT_EQ(hmac_sha256("", "").size(), 32u);
}

TEST(auth, random_bytes_do_not_repeat) {
  EXPECT_EQ(random_bytes(32).size(), 32u);
  EXPECT_NE(random_bytes(32), random_bytes(32));
}

TEST(auth, two_who_share_the_secret_learn_who_the_other_is) {
  auto client = Handshake::client("secret", kClient);
  auto server = Handshake::server("secret", kServer);
  const Outcome outcome = introduce(client, server);
  EXPECT_EQ(outcome.client.to_string(), "ok");
  EXPECT_EQ(outcome.server.to_string(), "ok");
  ASSERT_TRUE(client.done() && server.done());
  EXPECT_EQ(server.peer().rank, 3);
  EXPECT_EQ(client.peer().rank, 0);
  EXPECT_EQ(client.wants(), 0u);
  EXPECT_EQ(server.wants(), 0u);
}

TEST(auth, messages_have_the_documented_sizes) {
  auto client = Handshake::client("secret", kClient);
  auto server = Handshake::server("secret", kServer);
  EXPECT_EQ(server.wants(), 56u);
  const std::string hello = client.take_output();
  EXPECT_EQ(hello.size(), 56u);
  EXPECT_EQ(hello.substr(0, 4), "TUTI");
  ASSERT_TRUE(server.feed(hello).ok());
  EXPECT_EQ(client.wants(), 56u);
  ASSERT_TRUE(client.feed(server.take_output()).ok());
  EXPECT_EQ(server.wants(), 32u);
  const std::string proof = client.take_output();
  EXPECT_EQ(proof.size(), 32u);
  ASSERT_TRUE(server.feed(proof).ok());
  EXPECT_TRUE(server.done() && !client.done());
  EXPECT_EQ(client.wants(), 32u);
  EXPECT_EQ(server.take_output().size(), 32u);
}

// Before it has seen a proof, the server says nothing that depends on the secret: whoever comes
// without it learns nothing to try guesses on.
TEST(auth, the_server_does_not_prove_itself_to_a_stranger) {
  auto client = Handshake::client("secret", kClient);
  auto server = Handshake::server("secret", kServer);
  ASSERT_TRUE(server.feed(client.take_output()).ok());
  const std::string challenge = server.take_output();
  ASSERT_EQ(challenge.size(), 56u);
  EXPECT_EQ(server.feed(std::string(32, 'x')).code(), Code::corrupt);
  EXPECT_EQ(server.take_output(), std::string(32, '\0'));
}

TEST(auth, another_secret_is_found_out_by_the_server_first_and_told) {
  auto client = Handshake::client("secret", kClient);
  auto server = Handshake::server("other", kServer);
  const Outcome outcome = introduce(client, server);
  EXPECT_EQ(outcome.client.code(), Code::corrupt);
  EXPECT_THAT(outcome.client.message(), HasSubstr("secret"));
  EXPECT_EQ(outcome.server.code(), Code::corrupt);
  EXPECT_FALSE(client.done() || server.done());
}

TEST(auth, another_epoch_or_role_is_named_on_the_client) {
  auto client = Handshake::client("secret", {kRoleData, 3, 78});
  auto server = Handshake::server("secret", kServer);
  const Outcome outcome = introduce(client, server);
  EXPECT_EQ(outcome.client.code(), Code::mismatch);
  EXPECT_THAT(outcome.client.message(), HasSubstr("77"));
  EXPECT_THAT(outcome.client.message(), HasSubstr("78"));

  auto stray = Handshake::client("secret", {kRoleStore, 3, 77});
  auto data = Handshake::server("secret", kServer);
  EXPECT_EQ(introduce(stray, data).client.code(), Code::mismatch);
}

// Launchers meet before they know the job; ranks know it, and those of an old one stay out.
TEST(auth, the_store_knows_its_job_and_only_its_clients_may_ask_for_it) {
  const Identity store{kRoleStore, -1, epoch_of_job("a job")};
  auto old = Handshake::client("secret", {kRoleStore, -1, epoch_of_job("the job before")});
  auto server = Handshake::server("secret", store);
  const Outcome refused = introduce(old, server);
  EXPECT_EQ(refused.client.code(), Code::mismatch);
  EXPECT_EQ(refused.server.code(), Code::mismatch);

  auto launcher = Handshake::client("secret", {kRoleStore, -1, 0});
  auto again = Handshake::server("secret", store);
  EXPECT_TRUE(introduce(launcher, again).client.ok());
  EXPECT_EQ(launcher.peer().epoch, epoch_of_job("a job"));

  auto rank = Handshake::client("secret", {kRoleData, 3, 0});
  auto link = Handshake::server("secret", kServer);
  EXPECT_EQ(introduce(rank, link).server.code(), Code::mismatch);
}

TEST(auth, another_version_is_named_on_both_sides) {
  auto client = Handshake::client("secret", kClient);
  auto server = Handshake::server("secret", kServer);
  std::string hello = client.take_output();
  hello[4] = 9;
  const Status refused = server.feed(hello);
  EXPECT_EQ(refused.code(), Code::mismatch);
  EXPECT_THAT(refused.message(), HasSubstr("version 9"));
  // The answer still goes out, as long as version 2 reads; a client of version 9 would read ours in it.
  std::string challenge = server.take_output();
  ASSERT_EQ(challenge.size(), 88u);
  challenge[4] = 9;
  EXPECT_EQ(client.feed(challenge.substr(0, 56)).code(), Code::mismatch);
}

TEST(auth, a_stranger_is_corrupt_and_gets_no_answer) {
  auto server = Handshake::server("secret", kServer);
  const std::string http = "GET / HTTP/1.1\r\nHost: localhost\r\nUser-Agent: curious one\r\n";
  EXPECT_EQ(server.feed(http.substr(0, server.wants())).code(), Code::corrupt);
  EXPECT_EQ(server.take_output(), "");
}

// Byte `byte` of all that is said, counted over the four messages, arrives changed.
Outcome introduce_with_damage(std::size_t byte) {
  auto client = Handshake::client("secret", kClient);
  auto server = Handshake::server("secret", kServer);
  Outcome outcome;
  for (int message = 0; message < 4 && outcome.client.ok() && outcome.server.ok(); ++message) {
    const bool to_server = message % 2 == 0;
    std::string said = to_server ? client.take_output() : server.take_output();
    if (byte < said.size()) said[byte] ^= 1;
    byte -= said.size();  // wraps around, out of reach of the messages that follow
    (to_server ? outcome.server : outcome.client) = (to_server ? server : client).feed(said);
  }
  return outcome;
}

TEST(auth, every_changed_bit_of_every_message_is_found) {
  for (std::size_t byte = 0; byte < 56 + 56 + 32 + 32; ++byte) {
    const Outcome outcome = introduce_with_damage(byte);
    EXPECT_FALSE(outcome.client.ok() && outcome.server.ok()) << "byte " << byte;
  }
  const Outcome whole = introduce_with_damage(56 + 56 + 32 + 32);
  EXPECT_TRUE(whole.client.ok() && whole.server.ok());
}

TEST(auth, a_proof_cannot_be_reflected) {
  auto client = Handshake::client("secret", kClient);
  auto server = Handshake::server("secret", kServer);
  ASSERT_TRUE(server.feed(client.take_output()).ok());
  ASSERT_TRUE(client.feed(server.take_output()).ok());
  // The client's own proof sent back to it.
  EXPECT_EQ(client.feed(client.take_output()).code(), Code::corrupt);
}

// Everything that a client said, said again to another server, and the other way round.
TEST(auth, a_handshake_that_was_overheard_is_of_no_use) {
  auto client = Handshake::client("secret", kClient);
  auto server = Handshake::server("secret", kServer);
  const std::string hello = client.take_output();
  ASSERT_TRUE(server.feed(hello).ok());
  const std::string challenge = server.take_output();
  ASSERT_TRUE(client.feed(challenge).ok());
  const std::string proof = client.take_output();
  ASSERT_TRUE(server.feed(proof).ok());

  auto later = Handshake::server("secret", kServer);
  ASSERT_TRUE(later.feed(hello).ok());
  EXPECT_EQ(later.feed(proof).code(), Code::corrupt);

  auto late = Handshake::client("secret", kClient);
  ASSERT_TRUE(late.feed(challenge).ok());
  EXPECT_EQ(late.feed(server.take_output()).code(), Code::corrupt);
}

}  // namespace
}  // namespace tutti
