#include "core/tls.hpp"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <malloc.h>
#include <openssl/ssl.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <array>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <thread>
#include <vector>

#include "core/auth.hpp"
#include "core/byte_stream.hpp"

namespace tutti {
namespace {

using testing::HasSubstr;

const std::string kTlsSecret = "a secret of thirty-two bytes ...";

Nanoseconds tls_deadline() { return steady_clock().now() + std::chrono::seconds(20); }

Config encrypted() {
  Config config;
  config.tls = true;
  return config;
}

std::shared_ptr<const TlsContext> tls_context(const Config& config, const std::string& secret) {
  auto made = TlsContext::create(config, secret);
  EXPECT_TRUE(made.ok()) << made.status().to_string();
  return made.ok() ? *made : nullptr;
}

// Two ends of one connection, and what became of each one's handshake.
struct TlsPair {
  ByteStream client, server;
  Status client_status, server_status;

  TlsPair(std::shared_ptr<const TlsContext> of_client,
          std::shared_ptr<const TlsContext> of_server) {
    int ends[2];
    EXPECT_EQ(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, ends), 0);
    client = ByteStream(Descriptor(ends[0]), std::move(of_client), TlsSide::client);
    server = ByteStream(Descriptor(ends[1]), std::move(of_server), TlsSide::server);
  }
  void open() {
    std::thread other([&] {
      server_status = server.open(tls_deadline());
      if (!server_status.ok()) server.reset();
    });
    client_status = client.open(tls_deadline());
    other.join();
  }
};

TEST(tls, two_who_share_the_secret_speak_and_nobody_else_can_read_it) {
  TlsPair pair(tls_context(encrypted(), kTlsSecret), tls_context(encrypted(), kTlsSecret));
  pair.open();
  ASSERT_TRUE(pair.client_status.ok()) << pair.client_status.to_string();
  ASSERT_TRUE(pair.server_status.ok()) << pair.server_status.to_string();
  const std::string said = "attack at dawn, all of you, and bring the ladders";
  ASSERT_TRUE(pair.client.write_fully(said.data(), said.size(), tls_deadline()).ok());
  char wire[4096];
  const ssize_t seen = ::recv(pair.server.get(), wire, sizeof wire, MSG_PEEK);
  ASSERT_GT(seen, static_cast<ssize_t>(said.size()));
  EXPECT_EQ(std::string(wire, static_cast<std::size_t>(seen)).find("dawn"), std::string::npos);
  std::string heard(said.size(), '\0');
  ASSERT_TRUE(pair.server.read_fully(heard.data(), heard.size(), tls_deadline()).ok());
  EXPECT_EQ(heard, said);
}

TEST(tls, another_secret_is_refused_by_both) {
  TlsPair pair(tls_context(encrypted(), kTlsSecret),
               tls_context(encrypted(), "another secret altogether"));
  pair.open();
  EXPECT_EQ(pair.client_status.code(), Code::corrupt) << pair.client_status.to_string();
  EXPECT_THAT(pair.client_status.message(), HasSubstr("secret"));
  EXPECT_EQ(pair.server_status.code(), Code::corrupt) << pair.server_status.to_string();
}

TEST(tls, a_changed_bit_is_an_error_and_never_data) {
  TlsPair pair(tls_context(encrypted(), kTlsSecret), tls_context(encrypted(), kTlsSecret));
  pair.open();
  // Taken from the server's end, changed, and sent again.
  ASSERT_EQ(pair.client.send("a whole sentence", 16), 16);
  char wire[4096];
  const ssize_t seen = ::recv(pair.server.get(), wire, sizeof wire, 0);
  ASSERT_GT(seen, 16);
  wire[seen - 1] ^= 1;
  ASSERT_EQ(::send(pair.client.get(), wire, static_cast<std::size_t>(seen), 0), seen);
  char heard[16];
  EXPECT_EQ(pair.server.receive(heard, sizeof heard), -1);
  EXPECT_EQ(errno, EBADMSG);
}

// Both are read in one go: the good bytes come first, and what follows is not forgotten.
TEST(tls, a_changed_bit_behind_a_good_record_is_still_an_error) {
  TlsPair pair(tls_context(encrypted(), kTlsSecret), tls_context(encrypted(), kTlsSecret));
  pair.open();
  ASSERT_EQ(pair.client.send("a good sentence", 15), 15);
  ASSERT_EQ(pair.client.send("a changed one", 13), 13);
  char wire[4096];
  const ssize_t seen = ::recv(pair.server.get(), wire, sizeof wire, 0);
  ASSERT_GT(seen, 15 + 13);
  wire[seen - 1] ^= 1;
  ASSERT_EQ(::send(pair.client.get(), wire, static_cast<std::size_t>(seen), 0), seen);
  char heard[64];
  ASSERT_EQ(pair.server.receive(heard, sizeof heard), 15);
  for (int again = 0; again < 3; ++again) {
    errno = 0;
    EXPECT_EQ(pair.server.receive(heard, sizeof heard), -1);
    EXPECT_EQ(errno, EBADMSG);
  }
}

// A reader that lags: records stay half sent, and the caller meanwhile changes its mind about the rest.
TEST(tls, bytes_come_in_order_whatever_the_socket_takes) {
  TlsPair pair(tls_context(encrypted(), kTlsSecret), tls_context(encrypted(), kTlsSecret));
  pair.open();
  ASSERT_TRUE(pair.client_status.ok() && pair.server_status.ok());
  const std::size_t total = 3'000'000;
  std::string sent(total, '\0');
  for (std::size_t i = 0; i < total; ++i) sent[i] = static_cast<char>(i * 31 + i / 1000);
  std::thread writer([&] {
    std::size_t done = 0;
    while (done < total) {
      const std::size_t first = std::min<std::size_t>(48, total - done);
      const std::size_t second = std::min<std::size_t>(100'000, total - done - first);
      const iovec parts[2] = {{sent.data() + done, first}, {sent.data() + done + first, second}};
      const ssize_t put = ByteStreamRef(pair.client).send(parts, 2);
      ASSERT_TRUE(put > 0 || errno == EAGAIN);
      if (put > 0) done += static_cast<std::size_t>(put);
      if (put <= 0) {
        ASSERT_TRUE(wait_ready(pair.client.get(), POLLOUT, tls_deadline()).ok());
      }
    }
  });
  std::string heard(total, '\0');
  EXPECT_TRUE(pair.server.read_fully(heard.data(), total, tls_deadline()).ok());
  writer.join();
  EXPECT_TRUE(heard == sent);
}

TEST(tls, a_new_key_is_used_when_one_has_had_its_share) {
  constexpr ssize_t kOneByteRecord = 5 + 1 + 1 + 16;  // head, byte, kind, tag
  constexpr ssize_t kKeyUpdate = 5 + 5 + 1 + 16;
  const auto context = *TlsContext::create(encrypted(), kTlsSecret, 1);
  TlsPair pair(context, context);
  pair.open();
  ASSERT_EQ(pair.client.send("a", 1), 1);
  ASSERT_EQ(pair.client.send("b", 1), 1);
  char wire[4096];
  EXPECT_EQ(::recv(pair.server.get(), wire, sizeof wire, MSG_PEEK),
            kOneByteRecord + kKeyUpdate + kOneByteRecord);
  char heard[2];
  ASSERT_EQ(pair.server.receive(heard, sizeof heard), 2);
  EXPECT_EQ(std::string(heard, 2), "ab");
}

// Both write until nothing goes any more, and only then read: whoever could not read before its new key
// was announced would wait for the other for ever.
TEST(tls, keys_change_in_both_directions_while_both_sockets_are_full) {
  const auto context = *TlsContext::create(encrypted(), kTlsSecret, 1);
  TlsPair pair(context, context);
  pair.open();
  const std::string sent(3'000'000, 'x');
  struct End {
    ByteStream& stream;
    std::size_t written = 0, heard = 0;
  } ends[2] = {{pair.client}, {pair.server}};
  char buffer[32 * 1024];
  for (bool moves = true; moves;) {
    moves = false;
    for (End& end : ends) {
      // Of sizes that fill the socket now behind a record and now behind a key.
      while (end.written < sent.size()) {
        const std::size_t bytes = std::min(1 + end.written % 9973, sent.size() - end.written);
        const ssize_t put = end.stream.send(sent.data() + end.written, bytes);
        ASSERT_TRUE(put > 0 || errno == EAGAIN);
        if (put <= 0) break;
        end.written += static_cast<std::size_t>(put);
        moves = true;
      }
    }
    for (End& end : ends) {
      for (ssize_t got = 0; (got = end.stream.receive(buffer, sizeof buffer)) > 0; moves = true)
        end.heard += static_cast<std::size_t>(got);
    }
  }
  for (const End& end : ends) EXPECT_EQ(end.heard, sent.size());
}

TEST(tls, a_hello_is_understood_however_it_is_cut) {
  TlsPair pair(tls_context(encrypted(), kTlsSecret), tls_context(encrypted(), kTlsSecret));
  ASSERT_FALSE(*pair.client.step());
  char hello[4096];
  const ssize_t bytes = ::recv(pair.server.get(), hello, sizeof hello, 0);
  ASSERT_GT(bytes, 50);
  for (ssize_t i = 0; i < bytes; ++i) {
    EXPECT_EQ(pair.server.has_begun(), i >= static_cast<ssize_t>(kKnockBytes) + 9) << i;
    ASSERT_EQ(::send(pair.client.get(), hello + i, 1, 0), 1);
    ASSERT_FALSE(*pair.server.step());
  }
  pair.open();
  EXPECT_TRUE(pair.client_status.ok()) << pair.client_status.to_string();
  EXPECT_TRUE(pair.server_status.ok()) << pair.server_status.to_string();
}

// What the first nine bytes behind a knock cost that somebody repeats: OpenSSL would take as much memory
// as they claim.
TEST(tls, a_hello_that_claims_too_much_is_refused_by_its_head) {
  using Head = std::array<unsigned char, 9>;
  const auto context = tls_context(encrypted(), kTlsSecret);
  for (const Head& head : {Head{0x16, 3, 1, 0, 4, 1, 2, 1, 0x40},     // 131,392 bytes
                           Head{0x16, 3, 1, 0, 4, 1, 0, 8, 1},        // 2049
                           Head{0x16, 3, 1, 0, 4, 11, 0, 1, 0},       // no hello
                           Head{0x16, 3, 1, 0, 3, 1, 0, 1, 0},        // cut within its head
                           Head{0x16, 3, 1, 0x40, 1, 1, 0, 1, 0}}) {  // a record of 16,385 bytes
    TlsPair pair(context, context);
    const std::string knocked = knock(context->knock_key());
    ASSERT_EQ(::send(pair.client.get(), knocked.data(), knocked.size(), 0), 56);
    EXPECT_FALSE(*pair.server.step());
    ASSERT_EQ(::send(pair.client.get(), head.data(), head.size(), 0), 9);
    EXPECT_EQ(pair.server.step().status().code(), Code::corrupt);
    EXPECT_FALSE(pair.server.has_begun());
  }
}

// What nobody has proved anything for, by the heap's own account: first for those who say nothing, then
// for those who have sent all of a proper hello but its last byte.
TEST(tls, a_stranger_costs_less_than_4_KiB_whatever_he_sends) {
  constexpr std::size_t kStrangers = 100;
  const auto context = tls_context(encrypted(), kTlsSecret);
  const auto of_stranger = tls_context(encrypted(), "another secret altogether");
  std::vector<TlsPair> pairs;
  pairs.reserve(kStrangers);
  for (std::size_t i = 0; i < kStrangers; ++i) pairs.emplace_back(of_stranger, nullptr);
  std::vector<ByteStream> servers;
  servers.reserve(kStrangers);
  for (TlsPair& pair : pairs) ASSERT_FALSE(*pair.client.step());

  const auto held = [] { return ::mallinfo2().uordblks + ::mallinfo2().hblkhd; };
  const std::size_t before = held();
  for (TlsPair& pair : pairs)
    servers.emplace_back(pair.server.take_socket(), context, TlsSide::server);
  const std::size_t silent = held() - before;
  for (std::size_t i = 0; i < kStrangers; ++i) {
    char hello[4096];
    const ssize_t bytes = ::recv(servers[i].get(), hello, sizeof hello, 0);
    ASSERT_GT(bytes, 50);
    const std::size_t most = static_cast<std::size_t>(bytes) - 1;
    ASSERT_EQ(::send(pairs[i].client.get(), hello, most, 0), bytes - 1);
    (void)servers[i].step();
  }
  const std::size_t speaking = held() - before;
  std::printf("a silent stranger takes %zu bytes, one in the middle of his hello %zu\n",
              silent / kStrangers, speaking / kStrangers);
  EXPECT_LT(silent / kStrangers, 4096U);
  EXPECT_LT(speaking / kStrangers, 4096U);
}

// A hello whose Diffie-Hellman share does not suit the server is asked for once more, and the second one's
// length nobody checks. So only one who has shown in the first that he knows the secret is asked.
TEST(tls, a_stranger_is_not_asked_for_a_second_hello) {
  const auto client = [](const std::string& secret) {
    auto made = tls_context(encrypted(), secret);
    EXPECT_EQ(SSL_CTX_set1_groups_list(made->get(), "X25519:P-256"), 1);
    return made;
  };
  const auto server = tls_context(encrypted(), kTlsSecret);
  ASSERT_EQ(SSL_CTX_set1_groups_list(server->get(), "P-256"), 1);
  TlsPair friends(client(kTlsSecret), server);
  friends.open();
  EXPECT_TRUE(friends.client_status.ok()) << friends.client_status.to_string();
  EXPECT_TRUE(friends.server_status.ok()) << friends.server_status.to_string();

  const auto without_any = client(kTlsSecret);
  SSL_CTX_set_psk_use_session_callback(without_any->get(), nullptr);
  for (const auto& stranger : {client("another secret altogether"), without_any}) {
    TlsPair pair(stranger, server);
    ASSERT_FALSE(*pair.client.step());
    EXPECT_EQ(pair.server.step().status().code(), Code::corrupt);
  }
}

TEST(tls, a_knock_of_another_version_or_key_is_refused_in_words_that_the_other_side_understands) {
  const auto context = tls_context(encrypted(), kTlsSecret);
  std::string earlier = knock(context->knock_key());
  earlier[4] = 3;
  for (const std::string& said : {earlier, knock("another key"), std::string(kKnockBytes, 'T')}) {
    TlsPair pair(nullptr, context);
    ASSERT_TRUE(pair.client.write_fully(said.data(), said.size(), tls_deadline()).ok());
    const Status refused = pair.server.step().status();
    EXPECT_EQ(refused.code(), said == earlier ? Code::mismatch : Code::corrupt);
    std::string answer(kKnockBytes, '\0');
    ASSERT_TRUE(pair.client.read_fully(answer.data(), answer.size(), tls_deadline()).ok());
    EXPECT_THAT(read_knock_refusal(answer).message(), HasSubstr("secret"));
    answer[4] = 9;
    EXPECT_THAT(read_knock_refusal(answer).message(), HasSubstr("version 9"));
  }
}

TEST(tls, one_side_alone_is_refused_in_words_that_both_understand) {
  TlsPair plain_client(nullptr, tls_context(encrypted(), kTlsSecret));
  auto hello = Handshake::client(kTlsSecret, {.role = kRoleStore});
  const std::string out = hello.take_output();
  ASSERT_TRUE(plain_client.client.write_fully(out.data(), out.size(), tls_deadline()).ok());
  EXPECT_EQ(plain_client.server.open(tls_deadline()).code(), Code::mismatch);
  std::string in(hello.wants(), '\0');
  ASSERT_TRUE(plain_client.client.read_fully(in.data(), in.size(), tls_deadline()).ok());
  const Status told = hello.feed(in);
  EXPECT_EQ(told.code(), Code::mismatch);
  EXPECT_THAT(told.message(), HasSubstr("TUTTI_TLS"));

  TlsPair plain_server(tls_context(encrypted(), kTlsSecret), nullptr);
  EXPECT_FALSE(*plain_server.client.step());
  auto answer = Handshake::server(kTlsSecret, {.role = kRoleStore});
  std::string came(answer.wants(), '\0');
  ASSERT_TRUE(plain_server.server.read_fully(came.data(), came.size(), tls_deadline()).ok());
  const Status refused = answer.feed(came);
  EXPECT_EQ(refused.code(), Code::mismatch);
  EXPECT_THAT(refused.message(), HasSubstr("TUTTI_TLS"));
  const std::string words = answer.take_output();
  ASSERT_TRUE(plain_server.server.write_fully(words.data(), words.size(), tls_deadline()).ok());
  const Status heard = plain_server.client.open(tls_deadline());
  EXPECT_EQ(heard.code(), Code::mismatch) << heard.to_string();
  EXPECT_THAT(heard.message(), HasSubstr("TUTTI_TLS"));
}

class TlsCertificates : public testing::Test {
 protected:
  void SetUp() override {
    if (std::system("openssl version > /dev/null 2>&1") != 0) GTEST_SKIP() << "no openssl command";
    std::string pattern = testing::TempDir() + "tutti-tls-XXXXXX";
    folder_ = ::mkdtemp(pattern.data());
    make("a");
    make("b");
  }
  void TearDown() override { std::filesystem::remove_all(folder_); }
  // An authority, which is its own only member.
  void make(const std::string& name) const {
    const std::string command =
        "cd " + folder_ +
        " && openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes " +
        "-subj /CN=" + name + " -days 1 -keyout " + name + ".key -out " + name +
        ".crt > /dev/null 2>&1";
    ASSERT_EQ(std::system(command.c_str()), 0);
  }
  Config config(const std::string& own, const std::string& trusted) const {
    Config config = encrypted();
    config.tls_cert = folder_ + "/" + own + ".crt";
    config.tls_key = folder_ + "/" + own + ".key";
    config.tls_ca = folder_ + "/" + trusted + ".crt";
    return config;
  }
  std::string folder_;
};

TEST_F(TlsCertificates, of_one_authority_are_taken_and_others_refused) {
  TlsPair friends(tls_context(config("a", "a"), kTlsSecret),
                  tls_context(config("a", "a"), kTlsSecret));
  friends.open();
  EXPECT_TRUE(friends.client_status.ok()) << friends.client_status.to_string();
  EXPECT_TRUE(friends.server_status.ok()) << friends.server_status.to_string();

  TlsPair strangers(tls_context(config("a", "a"), kTlsSecret),
                    tls_context(config("b", "b"), kTlsSecret));
  strangers.open();
  EXPECT_EQ(strangers.client_status.code(), Code::corrupt);
  EXPECT_THAT(strangers.client_status.message(), HasSubstr("certificate"));
}

// Somebody who has a certificate of the same authority and not the secret, and stands between two who have
// both, passes on what each says.
TEST_F(TlsCertificates, do_not_let_a_proof_be_passed_on_between_two_connections) {
  const auto proved = [](const std::string& of_client, const std::string& of_server) {
    auto client = Handshake::client(kTlsSecret, {.role = kRoleStore});
    auto server = Handshake::server(kTlsSecret, {.role = kRoleStore});
    client.bind(of_client);
    server.bind(of_server);
    EXPECT_TRUE(server.feed(client.take_output()).ok());
    EXPECT_TRUE(client.feed(server.take_output()).ok());
    return server.feed(client.take_output());
  };
  const auto context = tls_context(config("a", "a"), kTlsSecret);
  TlsPair near(context, context);
  TlsPair far(context, context);
  near.open();
  far.open();
  EXPECT_TRUE(proved(near.client.binding(), near.server.binding()).ok());
  EXPECT_EQ(proved(near.client.binding(), far.server.binding()).code(), Code::corrupt);
}

TEST_F(TlsCertificates, that_are_not_there_are_named) {
  Config lacking = config("a", "a");
  lacking.tls_ca.clear();
  EXPECT_THAT(TlsContext::create(lacking, kTlsSecret).status().message(),
              HasSubstr("TUTTI_TLS_CA"));
  Config wrong = config("nobody", "a");
  EXPECT_THAT(TlsContext::create(wrong, kTlsSecret).status().message(), HasSubstr("nobody.crt"));
}

}  // namespace
}  // namespace tutti
