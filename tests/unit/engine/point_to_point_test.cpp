// What a peer must not send between two ranks: refused with Code::corrupt, whatever it is.
#include "engine/point_to_point.hpp"

#include <gtest/gtest.h>

#include "engine/fingerprint.hpp"

namespace tutti::engine {
namespace {

using transport::Header;
using transport::header_for;
using transport::MessageKind;

struct WritingLink final : transport::Link {
  std::string_view name() const override { return "writing"; }
  std::size_t eager_bytes() const override { return 1 << 16; }
  transport::Sent send(const Header& header, const void*, std::size_t bytes,
                       std::uint64_t) override {
    headers.push_back(header);
    return {true, false, bytes};
  }
  void release(std::uint64_t) override { ++released; }
  bool poll(transport::MessageSink&) override { return false; }
  void forget(std::uint32_t) override {}

  std::vector<Header> headers;
  int released = 0;
};

struct WritingGroup final : GroupView {
  transport::Link& link_to(int) override { return link; }
  bool has_arrived(int) const override { return true; }
  bool all_have_arrived() const override { return true; }
  std::uint32_t channel() const override { return 1; }
  WritingLink link;
};

class FromPeer : public ::testing::Test {
 protected:
  static Header header(MessageKind kind, std::uint64_t id, std::uint64_t extra = 0) {
    Header made = header_for(kind, 1, id);
    made.extra = extra;
    return made;
  }
  static Header eager(std::uint64_t id, std::uint64_t bytes) {
    Header made = header(MessageKind::eager, id, bytes);
    made.bytes = bytes;
    return made;
  }
  static Header piece(std::uint64_t id, std::uint64_t offset, std::uint64_t bytes) {
    Header made = header(MessageKind::bulk, id);
    made.offset = offset;
    made.bytes = bytes;
    return made;
  }
  Status deliver(const Header& header, int peer = 1) {
    Segment segment;
    segment.bytes = header.bytes;
    segment.lease = header.bytes > transport::kInlineBytes ? 9 : 0;
    segment.view = source.data();
    return messages.deliver(peer, header, segment);
  }
  void post(Posting posting) {
    posting.batch = std::make_shared<Batch>();
    posting.batch->open = 1;
    messages.post(std::move(posting));
  }
  void receive(std::size_t bytes) { post(Posting::recv(1, 0, memory.data(), bytes)); }
  void expect_corrupt(const Header& header, int peer = 1) {
    const Status status = deliver(header, peer);
    EXPECT_EQ(status.code(), Code::corrupt) << status.to_string();
    EXPECT_EQ(status.peer(), peer);
    EXPECT_EQ(status.rank(), 0);
  }

  std::vector<std::byte> memory{1 << 20};
  std::vector<std::byte> source{1 << 16};
  WritingGroup group;
  PointToPoint messages{group, 0, 3, "g"};
};

TEST_F(FromPeer, a_piece_has_its_place_and_no_more_bytes_than_its_message) {
  receive(1000);
  ASSERT_TRUE(deliver(header(MessageKind::request, 1, 1000)).ok());
  ASSERT_TRUE(deliver(piece(1, 0, 600)).ok());
  expect_corrupt(piece(1, 600, 401));
  expect_corrupt(piece(1, 600, ~std::uint64_t{0}));
  expect_corrupt(piece(1, 600, ~std::uint64_t{0} - 599));
  expect_corrupt(piece(1, 600, 0));
  expect_corrupt(piece(1, 0, 100));
  expect_corrupt(piece(2, 0, 100));
  expect_corrupt(piece(1, 0, 100), 2);
  EXPECT_GT(group.link.released, 0);
  ASSERT_TRUE(deliver(piece(1, 600, 400)).ok());
  EXPECT_TRUE(messages.step(Nanoseconds(0)));
  EXPECT_EQ(messages.ended().size(), 1u);
}

TEST_F(FromPeer, a_number_is_used_once) {
  receive(1000);
  ASSERT_TRUE(deliver(header(MessageKind::request, 5, 1000)).ok());
  expect_corrupt(header(MessageKind::request, 5, 1000));
  expect_corrupt(header(MessageKind::request, 4, 10));
  expect_corrupt(eager(5, 10));
  ASSERT_TRUE(deliver(header(MessageKind::request, 5, 1000), 2).ok());  // everybody has his own
  ASSERT_TRUE(deliver(eager(6, 10)).ok());
}

TEST_F(FromPeer, eager_messages_are_small_and_say_so_and_stay_within_their_credits) {
  expect_corrupt(eager(1, 16 * 1024 + 1));
  Header garbled = eager(1, 0);
  garbled.extra = 3 << 19;
  expect_corrupt(garbled);
  for (std::uint64_t id = 1; id <= 64; ++id) ASSERT_TRUE(deliver(eager(id, 10)).ok());
  expect_corrupt(eager(65, 10));
  for (int i = 0; i < 16; ++i) receive(1000);  // so many are credited back at once
  ASSERT_EQ(group.link.headers.size(), 1u);
  EXPECT_EQ(group.link.headers[0].kind, MessageKind::credit);
  for (std::uint64_t id = 65; id <= 80; ++id) ASSERT_TRUE(deliver(eager(id, 10)).ok());
  expect_corrupt(eager(81, 10));
}

TEST_F(FromPeer, credits_are_given_for_what_was_sent) {
  expect_corrupt(header(MessageKind::credit, 0, 1));
  expect_corrupt(header(MessageKind::credit, 0, ~std::uint64_t{0}));
  post(Posting::send(1, 0, memory.data(), 10));
  messages.step(Nanoseconds(0));
  expect_corrupt(header(MessageKind::credit, 0, 2));
  EXPECT_TRUE(deliver(header(MessageKind::credit, 0, 1)).ok());
}

TEST_F(FromPeer, only_who_was_asked_answers_and_only_once) {
  expect_corrupt(header(MessageKind::ready, 1));
  post(Posting::send(1, 0, memory.data(), memory.size()));
  messages.step(Nanoseconds(0));
  expect_corrupt(header(MessageKind::ready, 1), 2);
  expect_corrupt(header(MessageKind::ready, 2));
  EXPECT_TRUE(deliver(header(MessageKind::ready, 1)).ok());
  expect_corrupt(header(MessageKind::ready, 1));
}

TEST_F(FromPeer, half_a_message_cannot_be_taken_back) {
  receive(1000);
  ASSERT_TRUE(deliver(header(MessageKind::request, 1, 1000)).ok());
  Header cancel = header(MessageKind::request, 1);
  cancel.flags = transport::kCancel;
  ASSERT_TRUE(deliver(piece(1, 0, 600)).ok());
  expect_corrupt(cancel);
}

TEST_F(FromPeer, other_kinds_are_for_others) {
  expect_corrupt(header(MessageKind::bell, 1));
  expect_corrupt(header(MessageKind::data, 1));
}

TEST(Fingerprint, any_bytes_can_be_described) {
  for (int byte = 0; byte < 256; ++byte) {
    Fingerprint call;
    std::memset(static_cast<void*>(&call), byte, sizeof call);
    ActivityReport report;
    std::memset(static_cast<void*>(&report), byte, sizeof report);
    EXPECT_FALSE(describe(call).empty());
    EXPECT_FALSE(describe(report).empty());
  }
}

}  // namespace
}  // namespace tutti::engine
