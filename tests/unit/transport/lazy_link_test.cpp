// The place of a link until it is there: what it keeps, what it lets go, and in which order.
#include "transport/lazy_link.hpp"

#include <gtest/gtest.h>

#include <string>
#include <vector>

namespace tutti::transport {
namespace {

// Notes what goes by it.
class NotedLink final : public Link {
 public:
  std::string_view name() const override { return "noted"; }
  std::size_t eager_bytes() const override { return 7; }
  Sent send(const Header& header, const void* payload, std::size_t bytes, std::uint64_t) override {
    sent.push_back(std::string(to_string(header.kind)) + " " +
                   std::string(static_cast<const char*>(payload), bytes));
    return {true, false, bytes};
  }
  void flush_held() override { sent.emplace_back("flush"); }
  void set_urgency(std::uint32_t channel, Urgency urgency) override {
    sent.push_back("channel " + std::to_string(channel) + " " + std::string(to_string(urgency)));
  }
  void release(std::uint64_t) override {}
  bool poll(MessageSink&) override { return false; }
  void forget(std::uint32_t) override {}
  std::vector<std::string> sent;
};

class LazyLinks : public testing::Test {
 protected:
  Sent send(MessageKind kind, const std::string& text) {
    return link_.send(header_for(kind, 1, 1), text.data(), text.size(), 0);
  }
  int wanted_ = 0;
  NotedLink real_;
  LazyLink link_{{"noted", false, 100}, [this] { ++wanted_; }};
};

TEST_F(LazyLinks, are_wanted_once_and_keep_control_messages_in_order) {
  EXPECT_EQ(link_.eager_bytes(), 100u);
  link_.set_urgency(3, Urgency::urgent);
  EXPECT_EQ(wanted_, 0);
  EXPECT_TRUE(send(MessageKind::arrive, "a").accepted);
  EXPECT_FALSE(send(MessageKind::data, "b").accepted) << "there is no room for it yet";
  EXPECT_TRUE(send(MessageKind::request, "c").accepted);
  EXPECT_EQ(wanted_, 1);
  EXPECT_FALSE(link_.is_up());
  link_.come_up(real_);
  EXPECT_TRUE(link_.is_up());
  EXPECT_TRUE(send(MessageKind::data, "b").accepted);
  EXPECT_EQ(real_.sent, (std::vector<std::string>{"channel 3 urgent", "arrive a", "request c",
                                                  "flush", "data b"}));
  EXPECT_EQ(link_.eager_bytes(), 7u);
}

TEST_F(LazyLinks, are_not_made_to_say_goodbye) {
  EXPECT_TRUE(send(MessageKind::goodbye, "").accepted);
  EXPECT_TRUE(send(MessageKind::abort, "why").accepted);
  EXPECT_EQ(wanted_, 0);
  link_.open();
  link_.open();
  EXPECT_EQ(wanted_, 1);
  EXPECT_TRUE(send(MessageKind::goodbye, "").accepted);
  link_.come_up(real_);
  EXPECT_EQ(real_.sent, (std::vector<std::string>{"goodbye ", "flush"}));
}

TEST_F(LazyLinks, that_come_to_nothing_take_everything_and_drop_it) {
  EXPECT_TRUE(send(MessageKind::arrive, "a").accepted);
  link_.lose();
  EXPECT_TRUE(send(MessageKind::data, "b").accepted);
  EXPECT_TRUE(send(MessageKind::arrive, "c").accepted);
  EXPECT_EQ(wanted_, 1);
}

}  // namespace
}  // namespace tutti::transport
