// What a neighbour can write into its window, and must not: each ends the link with Code::corrupt.
#include "transport/memory_link.hpp"

#include <gtest/gtest.h>
#include <unistd.h>

#include <cstring>
#include <functional>

namespace tutti::transport {
namespace {

struct MemoryMessages final : MessageSink {
  std::byte* place(int, const Header&) override { return nullptr; }
  void on_message(int, const Header& header, const Payload& payload) override {
    headers.push_back(header);
    leases.push_back(payload.lease);
    texts.emplace_back(reinterpret_cast<const char*>(payload.data), header.bytes);
  }
  void on_sent(std::uint64_t token) override { sent.push_back(token); }
  void on_down(int, const Status& reason) override { downs.push_back(reason); }

  std::vector<Header> headers;
  std::vector<std::uint64_t> leases;
  std::vector<std::string> texts;
  std::vector<std::uint64_t> sent;
  std::vector<Status> downs;
};

constexpr std::uint64_t kLease = std::uint64_t{1} << 63;
constexpr std::uint64_t block_lease(std::size_t block) { return kLease | (kLoans + block) << 32; }

// Rank 0's link to rank 1, whose window lies open to the test.
class ForgedWindow : public testing::Test {
 protected:
  void SetUp() override {
    auto own = Window::create(0, kShape, true);
    auto peers = Window::create(1, kShape, true);
    ASSERT_TRUE(own.ok() && peers.ok());
    mine = *own;
    forged = *peers;
    auto seen = Window::attach(Descriptor(::dup(forged->memory())),
                               Descriptor(::dup(forged->bell())), forged->bytes(), 1, kShape.lanes);
    ASSERT_TRUE(seen.ok()) << seen.status().to_string();
    link = std::make_unique<MemoryLink>(MemoryLink::Ends{.name = "shm",
                                                         .same_process = false,
                                                         .self = 0,
                                                         .peer = 1,
                                                         .mine = mine,
                                                         .theirs = *seen,
                                                         .lane_of_peer = 1,
                                                         .lane_of_self = 0},
                                        regions, Log(), nullptr);
  }
  static Header header(MessageKind kind, std::uint64_t bytes, std::uint8_t flags = 0) {
    Header made = header_for(kind, 1, 1);
    made.bytes = bytes;
    made.flags = flags;
    return made;
  }
  static Header bell(std::uint32_t step, std::uint64_t bytes) {
    Header made = header(MessageKind::bell, bytes);
    made.step = step;
    return made;
  }
  void publish(const Header& header, const void* payload, std::size_t bytes) {
    Slot& slot = forged->lane(0).slots[tail % kSlots];
    slot.header = header;
    if (bytes > 0) std::memcpy(slot.payload, payload, bytes);
    slot.sequence.store(++tail);
  }
  void publish(const Header& header, const LoanNote& note) { publish(header, &note, sizeof note); }
  std::uint64_t offset_of(std::size_t block) const { return kShape.block_offset(0, block); }

  // Polls; nothing may come of it but the end of the link, which names the peer.
  void expect_corrupt(const std::string& word) {
    for (int i = 0; i < 3; ++i) link->poll(sink);
    EXPECT_TRUE(sink.headers.empty());
    ASSERT_EQ(sink.downs.size(), 1u);
    EXPECT_EQ(sink.downs[0].code(), Code::corrupt);
    EXPECT_EQ(sink.downs[0].peer(), 1);
    EXPECT_NE(sink.downs[0].message().find(word), std::string::npos) << sink.downs[0].message();
    EXPECT_TRUE(link->send(header(MessageKind::query, 0), nullptr, 0, 0).accepted);  // and dropped
  }

  const WindowShape kShape = WindowShape::of(2, 65536);
  std::shared_ptr<Window> mine;
  std::shared_ptr<Window> forged;
  RegionTable regions;
  std::unique_ptr<MemoryLink> link;
  MemoryMessages sink;
  std::uint64_t tail = 0;
};

TEST_F(ForgedWindow, what_is_as_it_should_be_passes) {
  publish(header(MessageKind::eager, 3), "abc", 3);
  std::memcpy(forged->block(0, 2), std::string(100, 'b').data(), 100);
  publish(header(MessageKind::data, 100), LoanNote{kArenaRegion, offset_of(2), block_lease(2)});
  EXPECT_TRUE(link->poll(sink));
  EXPECT_EQ(sink.texts, (std::vector<std::string>{"abc", std::string(100, 'b')}));
  EXPECT_TRUE(sink.downs.empty());
}

TEST_F(ForgedWindow, flags_that_a_kind_does_not_have) {
  Header landed = header(MessageKind::bulk, 0, 1);
  landed.extra = 3 << 19;
  publish(landed, nullptr, 0);
  expect_corrupt("flags");
}

TEST_F(ForgedWindow, an_eager_message_with_the_flag_of_another_kind) {
  publish(header(MessageKind::eager, 3, kRefuse), "abc", 3);
  expect_corrupt("flags");
}

TEST_F(ForgedWindow, a_kind_that_does_not_exist) {
  publish(header(static_cast<MessageKind>(77), 0), nullptr, 0);
  expect_corrupt("kind");
}

TEST_F(ForgedWindow, a_query_with_a_payload) {
  publish(header(MessageKind::query, 8), "12345678", 8);
  expect_corrupt("longer");
}

TEST_F(ForgedWindow, a_stream_where_there_is_none) {
  Header apart = header(MessageKind::data, 3);
  apart.spare = 1;
  publish(apart, "abc", 3);
  expect_corrupt("stream");
}

// The address is one of the neighbour's: following it would be the end of this process.
TEST_F(ForgedWindow, a_region_by_address_from_another_process) {
  const std::uint64_t words[2] = {5, 0xdeadbeef000};
  publish(bell(2, sizeof words), words, sizeof words);
  expect_corrupt("bell");
}

TEST_F(ForgedWindow, bells_of_a_length_or_meaning_that_there_is_not) {
  publish(bell(9, 0), nullptr, 0);
  expect_corrupt("bell");
}

TEST_F(ForgedWindow, a_mapped_region_without_its_number) {
  publish(bell(3, 0), nullptr, 0);
  expect_corrupt("bell");
}

// Bit 62 marks copies in this rank's own memory, which only this rank gives back.
TEST_F(ForgedWindow, a_lease_of_our_own_pool) {
  const std::uint64_t pooled = kLease | std::uint64_t{1} << 62 | 1;
  publish(header(MessageKind::data, 100), LoanNote{kArenaRegion, offset_of(0), pooled});
  expect_corrupt("lease");
}

TEST_F(ForgedWindow, a_block_that_is_not_there) {
  publish(header(MessageKind::data, 100),
          LoanNote{kArenaRegion, offset_of(0), block_lease(kShape.blocks())});
  expect_corrupt("lease");
}

TEST_F(ForgedWindow, a_payload_that_does_not_lie_in_its_block) {
  publish(header(MessageKind::data, 100), LoanNote{kArenaRegion, 0, block_lease(0)});
  expect_corrupt("outside");
}

TEST_F(ForgedWindow, a_payload_that_is_longer_than_its_block) {
  publish(header(MessageKind::data, kSmallBytes + 1),
          LoanNote{kArenaRegion, offset_of(0), block_lease(0)});
  expect_corrupt("outside");
}

TEST_F(ForgedWindow, a_payload_that_does_not_lie_in_its_region) {
  RegionTable theirs;
  ASSERT_TRUE(theirs.allocate(12, 4096, false).ok());
  ASSERT_TRUE(regions.add(1, 12, theirs.mapping(12)));
  publish(header(MessageKind::data, 100), LoanNote{12, 4096 - 99, kLease | 7});
  expect_corrupt("outside");
}

TEST_F(ForgedWindow, a_payload_of_a_region_that_was_freed_is_dropped_alone) {
  publish(header(MessageKind::data, 100), LoanNote{12, 0, kLease | 7});
  publish(header(MessageKind::eager, 3), "abc", 3);
  EXPECT_TRUE(link->poll(sink));
  EXPECT_EQ(sink.texts, std::vector<std::string>{"abc"});
  EXPECT_TRUE(sink.downs.empty());
}

TEST_F(ForgedWindow, an_address_of_another_process) {
  publish(header(MessageKind::data, 100), LoanNote{kDirectRegion, 0xdeadbeef000, kLease | 7});
  expect_corrupt("address");
}

TEST_F(ForgedWindow, an_eager_message_that_is_lent) {
  publish(header(MessageKind::eager, 100), LoanNote{12, 0, kLease | 7});
  expect_corrupt("lent");
}

TEST_F(ForgedWindow, leases_back_that_were_never_out) {
  for (const std::uint64_t lease :
       {std::uint64_t{0}, kLease | std::uint64_t{3} << 32, block_lease(1), ~std::uint64_t{0}}) {
    SetUp();
    sink = {};
    tail = 0;
    publish(bell(1, sizeof lease), &lease, sizeof lease);
    expect_corrupt("lease");
  }
}

TEST_F(ForgedWindow, a_lease_that_was_out_comes_back_once) {
  const std::string text(200, 't');
  ASSERT_TRUE(link->send(header(MessageKind::abort, 0), text.data(), text.size(), 0).accepted);
  LoanNote note;
  std::memcpy(&note, mine->lane(1).slots[0].payload, sizeof note);
  publish(bell(1, sizeof note.lease), &note.lease, sizeof note.lease);
  EXPECT_TRUE(link->poll(sink));
  EXPECT_TRUE(sink.downs.empty());
  publish(bell(1, sizeof note.lease), &note.lease, sizeof note.lease);
  expect_corrupt("lease");
}

TEST_F(ForgedWindow, messages_taken_that_were_never_sent) {
  forged->lane(0).consumed.store(1000);
  for (std::size_t i = 0; i <= kSlots; ++i)
    (void)link->send(header(MessageKind::query, 0), nullptr, 0, 0);
  expect_corrupt("taken");
}

}  // namespace
}  // namespace tutti::transport
