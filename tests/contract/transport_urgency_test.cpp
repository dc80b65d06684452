// What a link keeps for channels that are more urgent than others, on every transport that ships.
#include <gtest/gtest.h>

#include "contract/transport_pair.hpp"
#include "transport/ofi/providers.hpp"

namespace tutti::test {
namespace {

constexpr std::uint32_t kBulk = 11, kNormal = 12, kUrgent = 13;

class UrgencyContract : public testing::TestWithParam<std::string> {
 protected:
  Ranks ranks{2, GetParam()};
  void SetUp() override {
    ranks.leave_together = GetParam() == "ofi";
    ASSERT_TRUE(ranks.ok());
    for (const int rank : {0, 1}) {
      ranks.link(rank, 1 - rank).set_urgency(kBulk, Urgency::bulk);
      ranks.link(rank, 1 - rank).set_urgency(kUrgent, Urgency::urgent);
    }
  }

  // Messages of a channel are counted, each for itself.
  bool send(std::uint32_t channel, MessageKind kind, const std::string& text) {
    Header header = header_of(kind, ++count_[channel]);
    header.channel = channel;
    const Sent sent = ranks.link(0, 1).send(header, text.data(), text.size(), 0);
    EXPECT_TRUE(!sent.accepted || sent.bytes == text.size());
    if (!sent.accepted) --count_[channel];
    return sent.accepted;
  }
  // How many have come, in order.
  std::uint64_t come(std::uint32_t channel) {
    for (const auto& messages = ranks.note(1).messages; seen_ < messages.size(); ++seen_) {
      const Header& header = messages[seen_].header;
      EXPECT_EQ(header.sequence, ++come_[header.channel]) << "channel " << header.channel;
    }
    return come_[channel];
  }
  bool all_have_come() {
    return come(kBulk) == count_[kBulk] && come(kNormal) == count_[kNormal] &&
           come(kUrgent) == count_[kUrgent];
  }

  void expect_room_above(MessageKind kind, const std::string& text) {
    while (send(kBulk, kind, text)) {
    }
    EXPECT_TRUE(send(kNormal, kind, text));
    while (send(kNormal, kind, text)) {
    }
    EXPECT_FALSE(send(kBulk, kind, text));
    EXPECT_TRUE(send(kUrgent, kind, text));
    ASSERT_TRUE(ranks.poll_until([&] { return all_have_come(); }));
    // And when it was read there is room again for all.
    for (const std::uint32_t channel : {kBulk, kNormal, kUrgent})
      EXPECT_TRUE(ranks.poll_until([&] { return send(channel, kind, text); })) << channel;
    ASSERT_TRUE(ranks.poll_until([&] { return all_have_come(); }));
  }

  std::map<std::uint32_t, std::uint64_t> count_, come_;
  std::size_t seen_ = 0;
};

std::vector<std::string> shipped() {
  std::vector<std::string> words = {"inproc", "shm", "tcp"};
  if (ofi::providers().ok()) words.push_back("ofi");
  return words;
}

INSTANTIATE_TEST_SUITE_P(Transports, UrgencyContract, testing::ValuesIn(shipped()),
                         [](const auto& info) { return info.param; });

// Nobody reads at the other end: what gives way fills what there is for it, and no more.
TEST_P(UrgencyContract, each_level_leaves_room_for_small_messages_of_those_above_it) {
  expect_room_above(MessageKind::eager, pattern(3000));
}
TEST_P(UrgencyContract, each_level_leaves_room_for_large_messages_of_those_above_it) {
  expect_room_above(MessageKind::data, pattern(60'000));
}

// A large one, sent last, when no more fits of what was sent before it, and more follows all the time.
TEST_P(UrgencyContract, an_urgent_message_passes_bulk_ones_or_the_wait_for_their_room) {
  const std::string text = pattern(60'000);
  const auto fill_up = [&] {
    while (send(kBulk, MessageKind::data, text)) {
    }
  };
  for (int turn = 0; turn < 3; ++turn) {
    fill_up();
    ASSERT_TRUE(ranks.poll_until([&] { return all_have_come(); }));
  }
  fill_up();
  const std::uint64_t sent_before = count_[kBulk];
  ASSERT_TRUE(send(kUrgent, MessageKind::data, text));
  int looks = 0;
  for (; looks < 100'000 && come(kUrgent) == 0; ++looks) {
    fill_up();
    ranks.poll(0);
    ranks.poll(1);
  }
  EXPECT_EQ(come(kUrgent), 1U);
  if (GetParam() == "tcp" || GetParam() == "ofi") {
    // It passes even what the kernels had of the others, by a connection of its own; on ofi they have little.
    EXPECT_LT(come(kBulk), sent_before);
  } else {
    // A ring holds notes of them, and is looked through in two takes.
    EXPECT_LE(looks, 2);
  }
  ASSERT_TRUE(ranks.poll_until([&] { return all_have_come(); }));
}

}  // namespace
}  // namespace tutti::test
