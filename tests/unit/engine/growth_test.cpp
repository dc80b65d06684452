// What a peer that is linked and keeps to nothing can make a rank hold: so much, and then the group ends
// by its name.
#include "engine/fingerprint.hpp"
#include "engine/numbers.hpp"
#include "support/transports/engine_of_two.hpp"

namespace tutti::engine {
namespace {

using transport::Header;
using transport::header_for;
using transport::MessageKind;

class Growth : public test::EngineOfTwo {
 protected:
  static constexpr std::uint32_t kGroup = 1;
  static constexpr int kMany = 200'000;

  void SetUp() override {
    EngineOfTwo::SetUp();
    if (!HasFatalFailure()) channel_ = open(kGroup);
  }

  // Until the group has had enough; how many that took.
  int flood(const std::function<Header(int)>& make, const std::string& payload = {}) {
    int sent = 0;
    while (sent < kMany && channel_->health().ok()) {
      const auto taken = peer_->link(0)->send(make(sent), payload.data(), payload.size(), 0);
      sent += taken.accepted;
      if (!taken.accepted || sent % 16 == 0) engine_->step();
    }
    return sent;
  }
  void expect_blame() {
    EXPECT_EQ(channel_->health().code(), Code::corrupt) << channel_->health().to_string();
    EXPECT_EQ(channel_->health().peer(), 1);
  }

  std::shared_ptr<Channel> channel_;
};

TEST_F(Growth, by_messages_to_groups_that_there_are_not_is_bounded) {
  const auto sent = flood([](int i) {
    return header_for(MessageKind::query, 2 + static_cast<std::uint32_t>(i % 1000), 0);
  });
  EXPECT_LE(sent, static_cast<int>(EarlyMessages::kMostOfPeer) + 64);
  expect_blame();
}

TEST(EarlyMessages, are_kept_up_to_so_many_bytes_of_each_peer) {
  EarlyMessages early(2);
  const std::string text(1 << 20, 'x');
  Header header = header_for(MessageKind::meet, 2, 0);
  header.bytes = text.size();
  const transport::Payload payload{reinterpret_cast<const std::byte*>(text.data()), 0, false};
  const int most = EarlyMessages::kMostBytesOfPeer >> 20;
  for (int i = 0; i < most; ++i) ASSERT_TRUE(early.keep(1, header, payload)) << i;
  EXPECT_FALSE(early.keep(1, header, payload));
  EXPECT_TRUE(early.keep(0, header, payload)) << "who has nothing to do with it";
  EXPECT_EQ(early.take(2).size(), static_cast<std::size_t>(most) + 1);
  EXPECT_TRUE(early.keep(1, header, payload)) << "what was taken counts no more";
}

TEST_F(Growth, by_arrivals_is_bounded) {
  const std::string call(sizeof(Fingerprint), '\0');
  const auto sent = flood(
      [](int i) {
        return header_for(MessageKind::arrive, kGroup,
                          kSetUpSequences + 1 + static_cast<std::uint64_t>(i));
      },
      call);
  EXPECT_LE(sent, 512);
  expect_blame();
}

TEST_F(Growth, by_one_arrival_again_and_again_is_bounded) {
  const std::string call(sizeof(Fingerprint), '\0');
  const auto sent = flood([](int) { return header_for(MessageKind::arrive, kGroup, 7); }, call);
  EXPECT_LE(sent, 64);
  expect_blame();
}

TEST_F(Growth, by_data_for_collectives_that_were_not_begun_is_bounded) {
  const auto sent = flood([](int) { return header_for(MessageKind::data, kGroup, 7); }, "data");
  EXPECT_LE(sent, 20'000);
  expect_blame();
}

TEST_F(Growth, by_data_for_collectives_far_ahead_is_none) {
  const auto sent =
      flood([](int) { return header_for(MessageKind::data, kGroup, 1 << 20); }, "data");
  EXPECT_LE(sent, 64);
  expect_blame();
}

}  // namespace
}  // namespace tutti::engine
