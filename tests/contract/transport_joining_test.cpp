// How ranks find each other: what is chosen, who is turned away, and what the errors say.
#include <arpa/inet.h>
#include <gtest/gtest.h>
#include <netinet/tcp.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstdlib>
#include <optional>

#include "contract/transport_pair.hpp"
#include "core/auth.hpp"
#include "core/sockets.hpp"
#include "transport/address.hpp"
#include "transport/tcp/wire_header.hpp"

namespace tutti::test {
namespace {

TEST(Joining, threads_of_one_process_are_linked_by_inproc) {
  Ranks ranks(4, "auto");
  ASSERT_TRUE(ranks.ok());
  for (int a = 0; a < 4; ++a)
    for (int b = 0; b < a; ++b) {
      EXPECT_EQ(ranks.link(a, b).name(), "inproc");
      EXPECT_EQ(ranks.link(b, a).name(), "inproc");
    }
}

TEST(Joining, many_ranks_meet_over_every_transport) {
  for (const char* transport : {"inproc", "shm", "tcp"}) {
    Ranks ranks(11, transport);
    for (const Status& status : ranks.statuses) EXPECT_TRUE(status.ok()) << status.to_string();
  }
}

TEST(Joining, one_rank_alone_needs_nobody) {
  Ranks ranks(1, "auto");
  ASSERT_TRUE(ranks.ok());
  EXPECT_EQ(ranks.endpoints[0]->size(), 1);
  EXPECT_EQ(ranks.endpoints[0]->link(0), nullptr);
}

TEST(Joining, an_unknown_transport_is_an_error_that_lists_the_right_ones) {
  OpeningOptions options;
  options.size = 2;
  options.config.transport = "smoke";
  auto opening = Opening::open(options);
  ASSERT_FALSE(opening.ok());
  EXPECT_EQ(opening.status().code(), Code::invalid_argument);
  for (const char* word : {"smoke", "inproc", "shm", "tcp"})
    EXPECT_NE(opening.status().message().find(word), std::string::npos) << word;
}

TEST(Joining, a_pair_without_a_common_transport_is_told_so_on_both_sides) {
  Ranks ranks(2, "tcp", [](int rank, OpeningOptions& options) {
    if (rank == 1) options.config.transport = "shm";
  });
  for (int rank = 0; rank < 2; ++rank) {
    const Status& status = ranks.statuses[static_cast<std::size_t>(rank)];
    EXPECT_EQ(status.code(), Code::unsupported) << status.to_string();
    EXPECT_NE(status.message().find("rank 0"), std::string::npos);
    EXPECT_NE(status.message().find("rank 1"), std::string::npos);
  }
}

TEST(Joining, a_pair_that_may_use_shm_on_one_side_only_falls_back_to_tcp) {
  Ranks ranks(3, "auto", [](int rank, OpeningOptions& options) {
    if (rank == 1) options.config.transport = "tcp";
  });
  ASSERT_TRUE(ranks.ok());
  EXPECT_EQ(ranks.link(0, 1).name(), "tcp");
  EXPECT_EQ(ranks.link(1, 2).name(), "tcp");
  EXPECT_EQ(ranks.link(0, 2).name(), "inproc");
}

TEST(Joining, a_pair_has_as_many_streams_as_both_want) {
  Ranks ranks(3, "tcp", [](int rank, OpeningOptions& options) {
    options.config.streams = std::array{1, 3, 8}[static_cast<std::size_t>(rank)];
  });
  for (const Status& status : ranks.statuses) ASSERT_TRUE(status.ok()) << status.to_string();
  const std::string text = pattern(1'000'000);
  for (int from = 0; from < 3; ++from)
    for (int to = 0; to < 3; ++to) {
      if (from == to) continue;
      const std::size_t before = ranks.note(to).messages.size();
      std::size_t sent = 0;
      std::string got;
      ASSERT_TRUE(ranks.poll_until([&] {
        Header header = header_of(MessageKind::data, 1);
        header.offset = sent;
        if (sent < text.size())
          sent +=
              ranks.link(from, to).send(header, text.data() + sent, text.size() - sent, 0).bytes;
        got.clear();
        for (std::size_t i = before; i < ranks.note(to).messages.size(); ++i)
          got += ranks.note(to).messages[i].bytes;
        return got.size() == text.size();
      }));
      EXPECT_TRUE(got == text) << from << " -> " << to;
    }
}

TEST(Joining, another_secret_is_turned_away) {
  for (const char* transport : {"inproc", "shm", "tcp"}) {
    Ranks ranks(
        2, transport,
        [](int rank, OpeningOptions& options) {
          if (rank == 1) options.secret = "something else entirely";
        },
        500ms);
    EXPECT_EQ(ranks.statuses[1].code(), Code::corrupt) << ranks.statuses[1].to_string();
    EXPECT_NE(ranks.statuses[1].message().find("secret"), std::string::npos);
    EXPECT_EQ(ranks.statuses[0].code(), Code::timed_out) << ranks.statuses[0].to_string();
  }
}

TEST(Joining, ranks_link_under_tls) {
  Ranks ranks(3, "tcp", [](int, OpeningOptions& options) { options.config.tls = true; });
  for (const Status& status : ranks.statuses) ASSERT_TRUE(status.ok()) << status.to_string();
  const std::string text(100'000, 'x');
  std::size_t sent = 0;
  ASSERT_TRUE(ranks.poll_until([&] {
    Header header = header_of(MessageKind::data, 1);
    header.offset = sent;
    if (sent < text.size())
      sent += ranks.link(2, 0).send(header, text.data() + sent, text.size() - sent, 0).bytes;
    std::size_t got = 0;
    for (const auto& message : ranks.note(0).messages) got += message.bytes.size();
    return got == text.size();
  }));
}

TEST(Joining, tls_on_one_side_alone_is_refused_and_named) {
  for (const int encrypted : {0, 1}) {
    Ranks ranks(
        2, "tcp",
        [&](int rank, OpeningOptions& options) { options.config.tls = rank == encrypted; }, 500ms);
    EXPECT_EQ(ranks.statuses[1].code(), Code::mismatch) << ranks.statuses[1].to_string();
    EXPECT_NE(ranks.statuses[1].message().find("TUTTI_TLS"), std::string::npos);
    EXPECT_FALSE(ranks.statuses[0].ok());
  }
}

TEST(Joining, another_epoch_is_turned_away_naming_both) {
  for (const char* transport : {"inproc", "shm", "tcp"}) {
    Ranks ranks(
        2, transport,
        [](int rank, OpeningOptions& options) { options.epoch = rank == 0 ? 41 : 42; }, 500ms);
    EXPECT_EQ(ranks.statuses[1].code(), Code::mismatch) << ranks.statuses[1].to_string();
    EXPECT_NE(ranks.statuses[1].message().find("41"), std::string::npos);
    EXPECT_NE(ranks.statuses[1].message().find("42"), std::string::npos);
  }
}

TEST(Joining, a_rank_that_does_not_come_is_named_when_the_time_is_up) {
  std::vector<std::string> addresses;
  std::vector<std::unique_ptr<Opening>> openings;
  for (int rank = 0; rank < 3; ++rank) {
    OpeningOptions options;
    options.rank = rank;
    options.size = 3;
    auto opening = Opening::open(options);
    ASSERT_TRUE(opening.ok());
    addresses.push_back((*opening)->address());
    openings.push_back(std::move(*opening));
  }
  Status first;
  std::thread other([&] { first = openings[0]->connect(addresses, 300ms).status(); });
  const Status second = openings[1]->connect(addresses, 300ms).status();
  other.join();
  for (const Status& status : {first, second}) {
    EXPECT_EQ(status.code(), Code::timed_out);
    EXPECT_EQ(status.peer(), 2);
    EXPECT_NE(status.message().find("rank 2"), std::string::npos) << status.message();
  }
}

TEST(Joining, addresses_that_are_none_are_corrupt_not_a_crash) {
  OpeningOptions options;
  options.size = 2;
  auto opening = Opening::open(options);
  ASSERT_TRUE(opening.ok());
  const std::string good = (*opening)->address();
  for (const std::string& bad : {std::string(), std::string("hello"),
                                 good.substr(0, good.size() - 3), std::string(200, '\xff')})
    EXPECT_EQ((*opening)->connect({good, bad}, 1s).status().code(), Code::corrupt);
}

// A connection that says something and then listens until it is turned away.
void pester(const std::string& where, const std::string& words, std::vector<Descriptor>& kept) {
  auto address = SocketAddress::parse(where);
  ASSERT_TRUE(address.ok());
  auto socket = connect_to(*address, steady_clock().now() + 5s);
  ASSERT_TRUE(socket.ok());
  const auto deadline = steady_clock().now() + 5s;
  ASSERT_TRUE(write_fully(socket->get(), words.data(), words.size(), deadline).ok());
  kept.push_back(std::move(*socket));
}

TEST(Joining, strangers_change_nothing) {
  std::vector<Descriptor> strangers;
  const std::string huge("\xff\xff\xff\xff\xff\xff\xff\xff", 8);
  const auto meanwhile = [&](const std::vector<std::string>& addresses) {
    for (const std::string& bytes : addresses) {
      auto address = Address::decode(bytes);
      ASSERT_TRUE(address.ok());
      for (const std::string& where : {address->local, address->tcp_loopback}) {
        pester(where, "", strangers);
        pester(where, "GET / HTTP/1.1\r\n\r\n" + std::string(500, 'x'), strangers);
        pester(where, pattern(4000), strangers);
        pester(where, huge, strangers);
      }
    }
  };
  for (const char* transport : {"auto", "inproc,shm,tcp"}) {
    strangers.clear();
    Ranks ranks(3, transport, {}, kWaitAtMost, meanwhile);
    for (const Status& status : ranks.statuses) EXPECT_TRUE(status.ok()) << status.to_string();
    ASSERT_TRUE(ranks.link(2, 0).send(header_of(MessageKind::data, 1), "abc", 3, 0).accepted);
    EXPECT_TRUE(ranks.poll_until([&] { return ranks.note(0).messages.size() == 1; }));
    EXPECT_TRUE(ranks.note(0).downs.empty());
  }
}

TEST(Joining, nothing_listens_any_more_once_the_links_are_there) {
  std::optional<Address> address;
  Ranks ranks(2, "auto", {}, kWaitAtMost, [&](const std::vector<std::string>& addresses) {
    auto decoded = Address::decode(addresses[0]);
    ASSERT_TRUE(decoded.ok());
    address = *decoded;
  });
  ASSERT_TRUE(ranks.ok());
  for (const std::string& where : {address->local, address->tcp_loopback}) {
    auto parsed = SocketAddress::parse(where);
    ASSERT_TRUE(parsed.ok());
    EXPECT_FALSE(connect_to(*parsed, steady_clock().now() + 5s).ok()) << where;
  }
}

TEST(Joining, the_host_that_was_asked_for_is_the_one_that_listens) {
  OpeningOptions options;
  options.size = 2;
  options.config.host = "127.0.0.3";
  auto opening = Opening::open(options);
  ASSERT_TRUE(opening.ok()) << opening.status().to_string();
  auto address = Address::decode((*opening)->address());
  ASSERT_TRUE(address.ok());
  EXPECT_EQ(address->tcp_outward.rfind("127.0.0.3:", 0), 0u) << address->tcp_outward;
  options.config.host.clear();
  options.config.interface = "nosuch0";
  EXPECT_EQ(Opening::open(options).status().code(), Code::invalid_argument);
}

// Connects and proves to know `secret`, or not; empty: turned away.
Descriptor shake_hands_at(const std::string& where, const std::string& secret, Identity self) {
  auto address = SocketAddress::parse(where);
  auto socket = connect_to(*address, steady_clock().now() + 5s);
  if (!socket.ok()) return {};
  Handshake handshake = Handshake::client(secret, self);
  const auto deadline = steady_clock().now() + 5s;
  while (true) {
    const std::string out = handshake.take_output();
    if (!write_fully(socket->get(), out.data(), out.size(), deadline).ok()) return {};
    if (handshake.done()) return std::move(*socket);
    std::string in(handshake.wants(), '\0');
    if (!read_fully(socket->get(), in.data(), in.size(), deadline).ok()) return {};
    if (!handshake.feed(in).ok()) return {};
  }
}

std::vector<std::unique_ptr<Opening>> open_over_tcp(int size, const Log& log = {}) {
  std::vector<std::unique_ptr<Opening>> openings;
  for (int rank = 0; rank < size; ++rank) {
    OpeningOptions options;
    options.rank = rank;
    options.size = size;
    options.epoch = 7;
    options.secret = "a secret of thirty-two bytes ...";
    options.config = config_for("tcp");
    options.config.tcp_express = false;  // whoever poses as a rank brings one connection
    if (rank == 0) options.log = log;
    auto opening = Opening::open(options);
    EXPECT_TRUE(opening.ok()) << opening.status().to_string();
    openings.push_back(std::move(*opening));
  }
  return openings;
}

constexpr char kIntent[16] = "tcp";  // by which transport, and in the last byte: connection 0

// Somebody who knows the secret but sends nonsense afterwards: the link goes down, nothing else.
TEST(Joining, a_frame_that_cannot_be_one_takes_the_link_down_as_corrupt) {
  auto openings = open_over_tcp(2);
  std::vector<std::string> addresses;
  for (const auto& opening : openings) addresses.push_back(opening->address());
  Descriptor impostor;
  std::thread other([&] {
    Descriptor socket = shake_hands_at(Address::decode(addresses[0])->tcp_loopback,
                                       "a secret of thirty-two bytes ...", {kRoleData, 1, 7});
    const auto deadline = steady_clock().now() + 5s;
    EXPECT_TRUE(write_fully(socket.get(), kIntent, sizeof kIntent, deadline).ok());
    Header header = header_of(static_cast<MessageKind>(200), 1);
    header.bytes = ~std::uint64_t{0};
    WireHeader wire(header);
    wire.header_check = wire.check();
    EXPECT_TRUE(write_fully(socket.get(), &wire, sizeof wire, deadline).ok());
    impostor = std::move(socket);
  });
  auto endpoint = openings[0]->connect(addresses, kWaitAtMost);
  other.join();
  ASSERT_TRUE(endpoint.ok()) << endpoint.status().to_string();
  Notebook note(**endpoint);
  const auto limit = std::chrono::steady_clock::now() + kWaitAtMost;
  while (note.downs.empty() && std::chrono::steady_clock::now() < limit) (*endpoint)->poll(note);
  ASSERT_EQ(note.downs.size(), 1u);
  EXPECT_EQ(note.downs[0].second.code(), Code::corrupt);
  EXPECT_TRUE(note.messages.empty());
}

// As a rank does whose peer was stopped for longer than it waits: its last word and its end come together.
TEST(Joining, a_connection_that_its_rank_has_left_is_not_the_link) {
  auto openings = open_over_tcp(2);
  std::vector<std::string> addresses;
  for (const auto& opening : openings) addresses.push_back(opening->address());
  std::unique_ptr<Endpoint> other;
  std::thread rank_1([&] {
    const Descriptor left = shake_hands_at(Address::decode(addresses[0])->tcp_loopback,
                                           "a secret of thirty-two bytes ...", {kRoleData, 1, 7});
    const int on = 1;
    EXPECT_EQ(setsockopt(left.get(), IPPROTO_TCP, TCP_CORK, &on, sizeof on), 0);
    EXPECT_TRUE(write_fully(left.get(), kIntent, sizeof kIntent, steady_clock().now() + 5s).ok());
    EXPECT_EQ(shutdown(left.get(), SHUT_WR), 0);
    const auto deadline = steady_clock().now() + 1s;
    char byte = 0;
    while (read_fully(left.get(), &byte, 1, deadline).ok()) continue;  // rank 0 has done with it
    auto endpoint = openings[1]->connect(addresses, kWaitAtMost);
    EXPECT_TRUE(endpoint.ok()) << endpoint.status().to_string();
    if (endpoint.ok()) other = std::move(*endpoint);
  });
  auto endpoint = openings[0]->connect(addresses, kWaitAtMost);
  rank_1.join();
  ASSERT_TRUE(endpoint.ok()) << endpoint.status().to_string();
  ASSERT_TRUE(other);
  std::vector<std::unique_ptr<Endpoint>> endpoints;
  endpoints.push_back(std::move(*endpoint));
  endpoints.push_back(std::move(other));
  Ranks ranks(std::move(endpoints));
  ASSERT_TRUE(ranks.link(1, 0).send(header_of(MessageKind::data, 1), "abc", 3, 0).accepted);
  EXPECT_TRUE(ranks.poll_until([&] { return ranks.note(0).messages.size() == 1; }));
}

// Rank 1 is linked, and somebody who knows the secret says to be rank 1 as well, while rank 2 is awaited;
// so do others without the secret, of another epoch, of another version.
TEST(Joining, a_rank_that_is_linked_keeps_its_place_and_refusals_are_in_the_log) {
  char path[] = "/tmp/tutti-refused-XXXXXX";
  const Descriptor file(mkstemp(path));
  Config config;
  config.debug_file = path;
  auto log = Log::open(config);
  ASSERT_TRUE(log.ok());
  auto openings = open_over_tcp(3, *log);
  std::vector<std::string> addresses;
  for (const auto& opening : openings) addresses.push_back(opening->address());
  std::vector<std::unique_ptr<Endpoint>> endpoints(3);
  const auto join = [&](std::size_t rank) {
    auto endpoint = openings[rank]->connect(addresses, kWaitAtMost);
    EXPECT_TRUE(endpoint.ok()) << endpoint.status().to_string();
    if (endpoint.ok()) endpoints[rank] = std::move(*endpoint);
  };
  std::thread rank_0([&] { join(0); });
  std::thread rank_1([&] { join(1); });
  const std::string door = Address::decode(addresses[0])->tcp_loopback;
  const std::string secret = "a secret of thirty-two bytes ...";
  std::this_thread::sleep_for(200ms);  // both are linked
  {
    const Descriptor impostor = shake_hands_at(door, secret, {kRoleData, 1, 7});
    ASSERT_TRUE(impostor);
    ASSERT_TRUE(
        write_fully(impostor.get(), kIntent, sizeof kIntent, steady_clock().now() + 5s).ok());
    char byte = 0;
    Status end = read_fully(impostor.get(), &byte, 1, steady_clock().now() + 5s);
    if (end.ok()) end = read_fully(impostor.get(), &byte, 1, steady_clock().now() + 5s);
    EXPECT_EQ(end.code(), Code::io) << "turned away";
  }
  EXPECT_FALSE(shake_hands_at(door, secret, {kRoleData, 2, 6})) << "another epoch";
  (void)shake_hands_at(door, "another secret of 32 bytes .....", {kRoleData, 2, 7});
  std::this_thread::sleep_for(50ms);  // rank 0 has seen them off
  join(2);
  rank_0.join();
  rank_1.join();
  ASSERT_TRUE(endpoints[0] && endpoints[1] && endpoints[2]);
  Ranks ranks(std::move(endpoints));
  ASSERT_TRUE(ranks.link(1, 0).send(header_of(MessageKind::data, 1), "abc", 3, 0).accepted);
  EXPECT_TRUE(ranks.poll_until([&] { return ranks.note(0).messages.size() == 1; }));
  std::string text(8192, '\0');
  text.resize(
      static_cast<std::size_t>(std::max<ssize_t>(0, pread(file.get(), text.data(), 8192, 0))));
  unlink(path);
  for (const char* word : {"WARN", "turned away a connection from 127.0.0.1:",
                           "rank 1, which is linked already", "epoch", "secret"})
    EXPECT_NE(text.find(word), std::string::npos) << "should say " << word << ": " << text;
}

}  // namespace
}  // namespace tutti::test
