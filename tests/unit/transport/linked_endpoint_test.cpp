// Who is named when several links are at their end.
#include "transport/linked_endpoint.hpp"

#include <gtest/gtest.h>

namespace tutti::transport {
namespace {

struct CuttableLink final : MessageLink {
  std::string_view name() const override { return "cuttable"; }
  std::size_t eager_bytes() const override { return 0; }
  Sent send(const Header&, const void*, std::size_t, std::uint64_t) override { return {}; }
  void release(std::uint64_t) override {}
  bool poll(MessageSink&) override { return false; }
  void forget(std::uint32_t) override {}
  bool is_cut() const override { return cut; }
  Status watch(Reactor&) override { return {}; }
  bool ready() const override { return false; }
  void suppose_readable() override {}
  bool wants_room() const override { return false; }
  bool flush() override { return true; }
  void abandon() noexcept override {}

  bool cut = false;
};

class LooksForTheGone : public testing::Test {
 protected:
  void SetUp() override {
    auto window = Window::create(0, WindowShape::of(1, 4096), false);
    ASSERT_TRUE(window.ok()) << window.status().to_string();
    LinkedEndpoint::Parts parts;
    parts.size = 4;
    parts.window = *std::move(window);
    auto endpoint = LinkedEndpoint::create(std::move(parts));
    ASSERT_TRUE(endpoint.ok()) << endpoint.status().to_string();
    endpoint_ = *std::move(endpoint);
    for (int peer = 1; peer < 4; ++peer) {
      auto link = std::make_unique<CuttableLink>();
      links_.push_back(link.get());
      ASSERT_TRUE(endpoint_->add_message(peer, std::move(link)).ok());
    }
  }
  CuttableLink& link(int peer) { return *links_[static_cast<std::size_t>(peer - 1)]; }

  std::unique_ptr<LinkedEndpoint> endpoint_;
  std::vector<CuttableLink*> links_;
};

TEST_F(LooksForTheGone, find_who_was_gone_at_the_look_before) {
  EXPECT_TRUE(endpoint_->look_for_the_gone().ok());
  link(2).cut = true;
  EXPECT_TRUE(endpoint_->look_for_the_gone().ok()) << "it may be about to say why";
  const Status gone = endpoint_->look_for_the_gone();
  EXPECT_EQ(gone.code(), Code::peer_lost);
  EXPECT_EQ(gone.peer(), 2);
}

TEST_F(LooksForTheGone, do_not_take_one_that_gave_up_for_the_one_that_it_missed) {
  link(3).cut = true;
  EXPECT_TRUE(endpoint_->look_for_the_gone().ok());
  link(1).cut = true;
  EXPECT_EQ(endpoint_->look_for_the_gone().peer(), 3);
}

}  // namespace
}  // namespace tutti::transport
