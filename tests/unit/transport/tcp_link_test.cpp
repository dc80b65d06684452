// Two tcp links back to back, over several socket pairs.
#include "transport/tcp/tcp_link.hpp"

#include <arpa/inet.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <random>

namespace tutti::transport {
namespace {

struct LinkMessages final : MessageSink {
  explicit LinkMessages(TcpLink& link) : link(link) {}
  std::byte* place(int, const Header&) override { return nullptr; }
  void on_message(int, const Header& header, const Payload& payload) override {
    headers.push_back(header);
    texts.emplace_back(reinterpret_cast<const char*>(payload.data), header.bytes);
    if (payload.lease != 0) link.release(payload.lease);
  }
  void on_sent(std::uint64_t token) override { sent.push_back(token); }
  void on_down(int, const Status& reason) override { downs.push_back(reason); }

  TcpLink& link;
  std::vector<Header> headers;
  std::vector<std::string> texts;
  std::vector<std::uint64_t> sent;
  std::vector<Status> downs;
};

struct LinkShape {
  int streams = 1;
  bool has_express = false;
};

class Links : public testing::TestWithParam<LinkShape> {
 protected:
  static constexpr std::size_t kSegment = 32 * 1024;

  void SetUp() override {
    std::vector<ByteStream> ours;
    std::vector<ByteStream> theirs;
    const auto [streams, has_express] = GetParam();
    for (int i = 0; i < streams + (has_express ? 1 : 0); ++i) {
      int ends[2];
      ASSERT_EQ(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, ends), 0);
      spare.emplace_back(::dup(ends[0]));
      far.emplace_back(::dup(ends[1]));
      ours.emplace_back(Descriptor(ends[0]), tls(), TlsSide::client);
      theirs.emplace_back(Descriptor(ends[1]), tls(), TlsSide::server);
      for (int turn = 0; turn < 10; ++turn) {
        ASSERT_TRUE(ours.back().step().ok());
        ASSERT_TRUE(theirs.back().step().ok());
      }
    }
    constexpr Nanoseconds kNever{0};
    a = std::make_unique<TcpLink>(0, 1, std::move(ours), kSegment, "host a", true, kNever,
                                  steady_clock(), has_express);
    b = std::make_unique<TcpLink>(1, 0, std::move(theirs), kSegment, "host b", true, kNever,
                                  steady_clock(), has_express);
    auto made = Reactor::create();
    ASSERT_TRUE(made.ok());
    reactor = std::make_unique<Reactor>(std::move(*made));
    ASSERT_TRUE(a->watch(*reactor).ok());
    ASSERT_TRUE(b->watch(*reactor).ok());
    at_a = std::make_unique<LinkMessages>(*a);
    at_b = std::make_unique<LinkMessages>(*b);
  }
  virtual std::shared_ptr<const TlsContext> tls() const { return nullptr; }

  // What somebody between the two would see of what is on its way to b.
  std::string overheard() const {
    std::string all;
    for (const Descriptor& socket : far) {
      std::string seen(1 << 20, '\0');
      const ssize_t got = ::recv(socket.get(), seen.data(), seen.size(), MSG_PEEK | MSG_DONTWAIT);
      all.append(seen, 0, static_cast<std::size_t>(std::max<ssize_t>(got, 0)));
    }
    return all;
  }
  void poll(TcpLink& link, LinkMessages& sink) {
    reactor->look();
    if (link.ready()) link.poll(sink);
  }
  void poll_both() {
    if (a) poll(*a, *at_a);
    poll(*b, *at_b);
  }
  template <class Done>
  bool poll_until(Done done) {
    for (int turn = 0; turn < 2000 && !done(); ++turn) {
      poll_both();
      if (turn > 100) ::poll(nullptr, 0, 1);
    }
    return done();
  }
  void send_all_sizes();
  static Header header(MessageKind kind, std::uint64_t sequence) {
    Header made;
    made.kind = kind;
    made.sequence = sequence;
    made.channel = 1;
    return made;
  }

  std::unique_ptr<Reactor> reactor;
  std::vector<Descriptor> spare;  // the first side's sockets once more
  std::vector<Descriptor> far;    // and the other side's
  std::unique_ptr<TcpLink> a;
  std::unique_ptr<TcpLink> b;
  std::unique_ptr<LinkMessages> at_a;
  std::unique_ptr<LinkMessages> at_b;
};

std::string text_of(std::uint64_t sequence, std::size_t bytes) {
  std::string text(bytes, '\0');
  for (std::size_t i = 0; i < bytes; ++i) text[i] = static_cast<char>(sequence * 31 + i * 7 / 5);
  return text;
}

class EncryptedLinks : public Links {
 protected:
  std::shared_ptr<const TlsContext> tls() const override {
    Config config;
    config.tls = true;
    return *TlsContext::create(config, "a secret of thirty-two bytes ...");
  }
};

void Links::send_all_sizes() {
  std::mt19937 random(7);
  std::vector<std::string> texts;
  for (std::uint64_t i = 0; i < 400; ++i) {
    static constexpr std::size_t kSizes[] = {0, 1, 70, 100, 5000, 20'000, 33'000, 64'000};
    texts.push_back(text_of(i, kSizes[random() % std::size(kSizes)]));
  }
  std::size_t lent = 0;
  std::uint64_t next = 0;
  ASSERT_TRUE(poll_until([&] {
    while (next < texts.size()) {
      const std::string& text = texts[next];
      const MessageKind kind = text.size() > 100 ? MessageKind::data : MessageKind::eager;
      const Sent sent = a->send(header(kind, next), text.data(), text.size(), next);
      if (!sent.accepted) break;
      EXPECT_EQ(sent.bytes, text.size());
      lent += sent.lent;
      ++next;
    }
    return at_b->texts.size() == texts.size();
  }));
  for (std::uint64_t i = 0; i < texts.size(); ++i) {
    ASSERT_EQ(at_b->headers[i].sequence, i);
    ASSERT_TRUE(at_b->texts[i] == texts[i]) << i;
  }
  EXPECT_GT(lent, 0u);
  EXPECT_TRUE(poll_until([&] { return at_a->sent.size() == lent; }));
}

TEST_P(Links, messages_of_every_size_arrive_in_order) { send_all_sizes(); }
TEST_P(EncryptedLinks, messages_of_every_size_arrive_in_order) { send_all_sizes(); }

constexpr std::string_view kPlan = "the plan of attack, which is nobody else's business";

TEST_P(Links, carry_what_they_say_in_the_clear) {
  ASSERT_TRUE(a->send(header(MessageKind::eager, 1), kPlan.data(), kPlan.size(), 1).accepted);
  EXPECT_NE(overheard().find(kPlan), std::string::npos);
}

TEST_P(EncryptedLinks, tell_nothing_to_somebody_who_listens) {
  const std::string large = text_of(3, 60'000);
  ASSERT_TRUE(a->send(header(MessageKind::eager, 1), kPlan.data(), kPlan.size(), 1).accepted);
  ASSERT_TRUE(a->send(header(MessageKind::data, 2), large.data(), large.size(), 2).accepted);
  const std::string seen = overheard();
  EXPECT_GT(seen.size(), 30'000u);
  EXPECT_EQ(seen.find(kPlan.substr(0, 16)), std::string::npos);
  EXPECT_EQ(seen.find(large.substr(0, 16)), std::string::npos);
  ASSERT_TRUE(poll_until([&] { return at_b->texts.size() == 2; }));
  EXPECT_EQ(at_b->texts[0], kPlan);
  EXPECT_TRUE(at_b->texts[1] == large);
}

TEST_P(EncryptedLinks, go_down_when_a_bit_is_changed_on_the_way) {
  ASSERT_TRUE(a->send(header(MessageKind::eager, 1), kPlan.data(), kPlan.size(), 1).accepted);
  std::string seen(4096, '\0');
  const ssize_t got = ::recv(far[0].get(), seen.data(), seen.size(), MSG_DONTWAIT);
  ASSERT_GT(got, 0);
  seen[static_cast<std::size_t>(got) / 2] ^= 1;
  ASSERT_EQ(::send(spare[0].get(), seen.data(), static_cast<std::size_t>(got), 0), got);
  ASSERT_TRUE(poll_until([&] { return !at_b->downs.empty(); }));
  EXPECT_EQ(at_b->downs[0].code(), Code::corrupt);
  EXPECT_TRUE(at_b->texts.empty());
}

TEST_P(Links, what_is_held_leaves_with_the_next_or_when_flushed) {
  Header held = header(MessageKind::arrive, 1);
  held.flags = kHold;
  ASSERT_TRUE(a->send(held, "first", 5, 0).accepted);
  poll(*b, *at_b);
  EXPECT_TRUE(at_b->headers.empty());
  ASSERT_TRUE(a->send(header(MessageKind::data, 2), "second", 6, 0).accepted);
  poll(*b, *at_b);
  EXPECT_EQ(at_b->texts, (std::vector<std::string>{"first", "second"}));
  EXPECT_EQ(at_b->headers[0].flags, 0);
  ASSERT_TRUE(a->send(held, "third", 5, 0).accepted);
  a->flush_held();
  poll(*b, *at_b);
  EXPECT_EQ(at_b->texts.back(), "third");
  // A poll, too, sends what somebody forgot.
  ASSERT_TRUE(a->send(held, "fourth", 6, 0).accepted);
  EXPECT_TRUE(a->ready());
  a->poll(*at_a);
  poll(*b, *at_b);
  EXPECT_EQ(at_b->texts.back(), "fourth");
}

TEST_P(Links, one_connection_that_breaks_ends_the_link_on_both_sides) {
  const std::string large = text_of(1, 60'000);
  ASSERT_TRUE(a->send(header(MessageKind::data, 1), large.data(), large.size(), 0).accepted);
  ASSERT_TRUE(poll_until([&] { return at_b->texts.size() == 1; }));
  ::shutdown(spare.back().get(), SHUT_RDWR);
  ASSERT_TRUE(poll_until([&] { return !at_a->downs.empty() && !at_b->downs.empty(); }));
  for (int turn = 0; turn < 10; ++turn) poll_both();
  EXPECT_EQ(at_a->downs.size(), 1u);
  EXPECT_EQ(at_b->downs.size(), 1u);
  EXPECT_EQ(at_b->downs[0].code(), Code::peer_lost);
  EXPECT_NE(at_b->downs[0].message().find("host b"), std::string::npos);
  EXPECT_TRUE(a->send(header(MessageKind::data, 2), large.data(), large.size(), 0).accepted);
}

TEST_P(Links, nobody_waits_for_room_at_a_peer_that_was_given_up) {
  const std::string text = text_of(1, 10'000);
  while (a->send(header(MessageKind::eager, 1), text.data(), text.size(), 0).accepted) continue;
  EXPECT_TRUE(a->wants_room());
  EXPECT_FALSE(a->flush());
  a->give_up(*at_a, Status(Code::peer_lost, "silent"));
  EXPECT_FALSE(a->wants_room());
  EXPECT_TRUE(a->flush());
}

TEST_P(Links, what_was_sent_before_an_orderly_end_still_arrives) {
  std::vector<std::string> texts;
  for (std::uint64_t i = 0; i < 6; ++i) texts.push_back(text_of(i, i % 2 == 0 ? 30'000 : 50));
  for (std::uint64_t i = 0; i < 6; ++i)
    ASSERT_TRUE(
        a->send(header(MessageKind::data, i), texts[i].data(), texts[i].size(), i).accepted);
  ASSERT_TRUE(poll_until([&] { return a->flush(); }));
  spare.clear();  // else the epoll set would keep the sockets that are closed now
  a.reset();
  ASSERT_TRUE(poll_until([&] { return !at_b->downs.empty(); }));
  EXPECT_EQ(at_b->texts, texts);
}

TEST_P(Links, a_frame_that_does_not_fit_its_checksum_ends_the_link_by_name) {
  WireHeader damaged = WireHeader::sealed(header(MessageKind::query, 1), nullptr);
  damaged.header.tag ^= 4;
  ASSERT_EQ(::write(spare.front().get(), &damaged, sizeof damaged), 56);
  ASSERT_TRUE(poll_until([&] { return !at_b->downs.empty(); }));
  EXPECT_EQ(at_b->downs[0].code(), Code::corrupt);
  EXPECT_EQ(at_b->downs[0].peer(), 0);
  EXPECT_NE(at_b->downs[0].message().find("checksum"), std::string::npos);
  EXPECT_NE(at_b->downs[0].message().find("rank 0 (host b)"), std::string::npos);
  EXPECT_TRUE(at_b->headers.empty());
}

// More was sent before than the sockets take, and nobody has read anything.
TEST_P(Links, what_is_urgent_passes_what_is_not_and_keeps_its_own_order) {
  constexpr std::uint32_t kUrgentChannel = 9;
  a->set_urgency(kUrgentChannel, Urgency::urgent);
  const std::string bulk = text_of(1, 60'000);
  std::uint64_t sent = 0;
  while (a->send(header(MessageKind::data, sent), bulk.data(), bulk.size(), 0).accepted) ++sent;
  std::vector<std::string> texts;
  for (std::uint64_t i = 0; i < 6; ++i) texts.push_back(text_of(i, i % 2 == 0 ? 30'000 : 50));
  for (std::uint64_t i = 0; i < 6; ++i) {
    Header urgent = header(MessageKind::data, i);
    urgent.channel = kUrgentChannel;
    // The small ones wait for the next, as arrivals do.
    if (i % 2 == 1) urgent.flags = kHold;
    ASSERT_TRUE(a->send(urgent, texts[i].data(), texts[i].size(), 100 + i).accepted);
  }
  a->flush_held();
  std::size_t before = 0;  // of the others, when the last urgent one came
  std::vector<std::string> come;
  ASSERT_TRUE(poll_until([&] {
    come.clear();
    for (std::size_t i = 0; i < at_b->headers.size(); ++i)
      if (at_b->headers[i].channel == kUrgentChannel) come.push_back(at_b->texts[i]);
    before = at_b->headers.size() - come.size();
    return come.size() == texts.size();
  }));
  EXPECT_EQ(come, texts);
  EXPECT_LE(before, GetParam().has_express ? sent / 2 : sent - 1);
  ASSERT_TRUE(poll_until([&] { return at_b->headers.size() == sent + texts.size(); }));
  // Both streams say goodbye.
  spare.clear();
  a.reset();
  EXPECT_TRUE(poll_until([&] { return at_b->downs.size() == 1; }));
}

INSTANTIATE_TEST_SUITE_P(streams, EncryptedLinks,
                         testing::Values(LinkShape{1}, LinkShape{4}, LinkShape{1, true}));
INSTANTIATE_TEST_SUITE_P(Streams, Links,
                         testing::Values(LinkShape{1}, LinkShape{2}, LinkShape{3},
                                         LinkShape{kMaxStreams}, LinkShape{1, true},
                                         LinkShape{3, true}));

// A connection over loopback, whose far end the test holds in its hands.
class Loopback : public testing::Test {
 protected:
  void SetUp() override {
    const Descriptor listener(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    socklen_t bytes = sizeof address;
    auto* where = reinterpret_cast<sockaddr*>(&address);
    ASSERT_EQ(::bind(listener.get(), where, sizeof address), 0);
    ASSERT_EQ(::listen(listener.get(), 1), 0);
    ASSERT_EQ(::getsockname(listener.get(), where, &bytes), 0);
    far.reset(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
    ASSERT_EQ(::connect(far.get(), where, sizeof address), 0);
    std::vector<ByteStream> sockets;
    sockets.emplace_back(
        Descriptor(::accept4(listener.get(), nullptr, nullptr, SOCK_NONBLOCK | SOCK_CLOEXEC)));
    link = std::make_unique<TcpLink>(0, 1, std::move(sockets), 32 * 1024, "host a");
    sink = std::make_unique<LinkMessages>(*link);
  }
  WireHeader read_header() {
    WireHeader wire;
    EXPECT_EQ(::recv(far.get(), &wire, sizeof wire, MSG_WAITALL), 56);
    return wire;
  }
  // What the link puts before a payload after the far end has said where it is.
  WireHeader after(const SocketEnd& claimed) {
    SocketEnd told;
    EXPECT_EQ(read_header().header.step, kEndBell);
    EXPECT_EQ(::recv(far.get(), &told, sizeof told, MSG_WAITALL), 20);
    EXPECT_EQ(told, SocketEnd::of_peer(far.get()));
    Header bell = header_for(MessageKind::bell, 0, 0);
    bell.step = kEndBell;
    bell.bytes = sizeof claimed;
    const WireHeader wire = WireHeader::sealed(bell, &claimed);
    EXPECT_EQ(::write(far.get(), &wire, sizeof wire), 56);
    EXPECT_EQ(::write(far.get(), &claimed, sizeof claimed), 20);
    for (int i = 0; i < 20; ++i, ::poll(nullptr, 0, 1)) {
      link->suppose_readable();
      link->poll(*sink);
    }
    EXPECT_TRUE(link->send(header_for(MessageKind::eager, 1, 1), "text", 4, 0).accepted);
    return read_header();
  }

  Descriptor far;
  std::unique_ptr<TcpLink> link;
  std::unique_ptr<LinkMessages> sink;
};

TEST_F(Loopback, within_one_kernel_payloads_go_without_a_checksum_and_headers_never) {
  const WireHeader wire = after(*SocketEnd::of_own(far.get()));
  EXPECT_EQ(wire.header.flags, kUnchecked);
  EXPECT_EQ(wire.payload_check, 0u);
  EXPECT_EQ(wire.header_check, wire.check());
  EXPECT_TRUE(sink->downs.empty());
}

// As it is when something between the two takes the bytes and passes them on.
TEST_F(Loopback, with_somebody_between_payloads_keep_their_checksum) {
  SocketEnd elsewhere = *SocketEnd::of_own(far.get());
  ++elsewhere.port;
  const WireHeader wire = after(elsewhere);
  EXPECT_EQ(wire.header.flags, 0);
  EXPECT_EQ(wire.payload_check, crc32c("text", 4));
}

}  // namespace
}  // namespace tutti::transport
