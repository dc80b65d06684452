// What memory links promise beyond the common contract: loans, revocation, regions, doorbells.
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>

#include "contract/transport_pair.hpp"
#include "support/transports/inproc_endpoints.hpp"

namespace tutti::test {
namespace {

class MemoryLinkContract : public testing::TestWithParam<std::string> {
 protected:
  Ranks ranks{2, GetParam()};
  void SetUp() override { ASSERT_TRUE(ranks.ok()); }

  // Memory of rank 0 that rank 1 can reach: any memory within one process, a region between two.
  std::byte* shared_memory(std::size_t bytes) {
    auto region = ranks.endpoints[0]->allocate_region(5, bytes, {1});
    EXPECT_TRUE(region.ok()) << region.status().to_string();
    EXPECT_TRUE(ranks.poll_until([&] { return ranks.endpoints[1]->region_has_come(0, 5); }));
    // The owner lends only after it has heard that the mapping is there.
    EXPECT_TRUE(
        ranks.poll_until([&] { return ranks.link(0, 1).share(region->data, 1).region != 0; }));
    return region->data;
  }
  void fill(std::byte* data, const std::string& text) {
    std::memcpy(data, text.data(), text.size());
  }
};

INSTANTIATE_TEST_SUITE_P(Transports, MemoryLinkContract, testing::Values("inproc", "shm"),
                         [](const auto& info) { return info.param; });

TEST_P(MemoryLinkContract, reachable_memory_is_lent_whole_and_not_reported_before_its_release) {
  const std::string text = pattern(1'000'000);
  std::byte* data = shared_memory(text.size());
  fill(data, text);
  ranks.note(1).keep = true;
  const Sent sent = ranks.link(0, 1).send(header_of(MessageKind::data, 3), data, text.size(), 42);
  EXPECT_TRUE(sent.accepted && sent.lent);
  EXPECT_EQ(sent.bytes, text.size());
  ASSERT_TRUE(ranks.poll_until([&] { return ranks.note(1).messages.size() == 1; }));
  const Received& message = ranks.note(1).messages[0];
  EXPECT_EQ(message.bytes, text);
  for (int i = 0; i < 1000; ++i) ranks.poll(0);
  EXPECT_TRUE(ranks.note(0).sent.empty());
  // The view is the sender's own memory, not a copy.
  data[10] = std::byte{0x5a};
  EXPECT_EQ(message.view[10], std::byte{0x5a});

  ranks.link(1, 0).release(message.lease);
  ASSERT_TRUE(ranks.poll_until([&] { return !ranks.note(0).sent.empty(); }));
  EXPECT_EQ(ranks.note(0).sent, std::vector<std::uint64_t>{42});
}

TEST_P(MemoryLinkContract, forget_revokes_exactly_the_views_of_its_channel) {
  std::byte* data = shared_memory(4096);
  ranks.note(1).keep = true;
  for (const std::uint32_t channel : {8u, 9u, 8u + 1024u})
    ASSERT_TRUE(
        ranks.link(0, 1).send(header_of(MessageKind::data, 1, channel), data, 1000, channel).lent);
  ASSERT_TRUE(ranks.poll_until([&] { return ranks.note(1).messages.size() == 3; }));
  const auto& messages = ranks.note(1).messages;
  Link& receiver = ranks.link(1, 0);
  for (const Received& message : messages) EXPECT_FALSE(receiver.revoked(message.lease));
  ranks.link(0, 1).forget(8);
  EXPECT_TRUE(receiver.revoked(messages[0].lease));
  EXPECT_FALSE(receiver.revoked(messages[1].lease));
  EXPECT_FALSE(receiver.revoked(messages[2].lease));
  for (const Received& message : messages) receiver.release(message.lease);
  ASSERT_TRUE(ranks.poll_until([&] { return ranks.note(0).sent.size() == 2; }));
  EXPECT_EQ(ranks.note(0).sent, (std::vector<std::uint64_t>{9, 8 + 1024}));
}

TEST_P(MemoryLinkContract, a_reused_loan_is_not_taken_for_the_revoked_one) {
  std::byte* data = shared_memory(4096);
  ranks.note(1).keep = true;
  for (std::uint64_t round = 0; round < 2000; ++round) {
    ASSERT_TRUE(ranks.link(0, 1).send(header_of(MessageKind::data, round), data, 100, round).lent);
    if (round % 3 == 0) ranks.link(0, 1).forget(1);
    ASSERT_TRUE(ranks.poll_until([&] { return ranks.note(1).messages.size() == 1; }));
    const std::uint64_t lease = ranks.note(1).messages[0].lease;
    ASSERT_EQ(ranks.link(1, 0).revoked(lease), round % 3 == 0);
    ranks.link(1, 0).release(lease);
    ranks.note(1).messages.clear();
    for (int i = 0; i < 3; ++i) ranks.poll(0);
  }
}

TEST_P(MemoryLinkContract, with_every_loan_out_the_link_still_moves_and_never_loses_one) {
  std::byte* data = shared_memory(1 << 16);
  ranks.note(1).keep = true;
  std::vector<std::uint64_t> lent;
  std::uint64_t accepted = 0;
  for (; accepted < 700; ++accepted) {
    const Sent sent =
        ranks.link(0, 1).send(header_of(MessageKind::data, accepted), data, 80, accepted);
    if (!sent.accepted) break;
    if (sent.lent) lent.push_back(accepted);
    ranks.poll(1);
  }
  EXPECT_GE(lent.size(), 500u);
  ASSERT_TRUE(ranks.poll_until([&] { return ranks.note(1).messages.size() == accepted; }));
  for (const Received& message : ranks.note(1).messages) ranks.link(1, 0).release(message.lease);
  ASSERT_TRUE(ranks.poll_until([&] { return ranks.note(0).sent.size() == lent.size(); }));
  std::sort(ranks.note(0).sent.begin(), ranks.note(0).sent.end());
  EXPECT_EQ(ranks.note(0).sent, lent);
  EXPECT_TRUE(ranks.link(0, 1).send(header_of(MessageKind::data, 1), data, 80, 1).lent);
}

TEST_P(MemoryLinkContract, regions_are_zeroed_reachable_and_writable_by_the_peer) {
  std::byte* data = shared_memory(10'000);
  for (int i = 0; i < 10'000; ++i) ASSERT_EQ(data[i], std::byte{0});
  const MemoryRef ref = ranks.link(0, 1).share(data + 100, 200);
  ASSERT_NE(ref.region, 0u);
  std::byte* reached = ranks.link(1, 0).reach(ref, 200);
  ASSERT_NE(reached, nullptr);
  reached[7] = std::byte{0x77};
  EXPECT_EQ(data[107], std::byte{0x77});
  EXPECT_EQ(ranks.link(1, 0).reach({5, 9'900}, 200), nullptr);  // past the end
  EXPECT_EQ(ranks.link(1, 0).reach({6, 0}, 1), nullptr);        // no such region
}

TEST_P(MemoryLinkContract, a_freed_region_is_gone_on_this_rank_and_its_id_can_be_used_again) {
  shared_memory(4096);
  ranks.endpoints[1]->free_region(5);
  EXPECT_FALSE(ranks.endpoints[1]->region_has_come(0, 5));
  ranks.endpoints[0]->free_region(5);
  std::byte* again = shared_memory(8192);
  EXPECT_NE(again, nullptr);
}

TEST_P(MemoryLinkContract, an_idle_rank_is_woken_by_urgent_messages_only) {
  std::atomic<int> woken{0};
  std::atomic<bool> asleep{false};
  std::atomic<bool> stop{false};
  std::thread idler([&] {
    // News that there is already is dealt with first: fresh descriptors report themselves.
    for (int i = 0; i < 1000; ++i) ranks.endpoints[1]->poll(ranks.note(1));
    while (!stop) {
      ranks.endpoints[1]->sleep(kWaitAtMost, true, [&] {
        asleep = true;
        return ranks.endpoints[1]->poll(ranks.note(1));
      });
      ++woken;
    }
  });
  while (!asleep) std::this_thread::yield();
  for (std::uint64_t i = 0; i < 10; ++i)
    ASSERT_TRUE(ranks.link(0, 1).send(header_of(MessageKind::data, i), "abc", 3, 0).accepted);
  const int before = woken;
  // Long enough for a wrong ring to show; a right implementation does not depend on it.
  std::this_thread::sleep_for(20ms);
  const int after = woken;
  stop = true;
  ASSERT_TRUE(ranks.link(0, 1).send(header_of(MessageKind::abort, 1), "abc", 3, 0).accepted);
  idler.join();  // would take kWaitAtMost if the abort did not ring
  EXPECT_EQ(before, after);
}

// ---- without Opening

class Curtain final : public Visibility {
 public:
  bool visible(int from, int to, std::uint64_t slot) override {
    last = {from, to, static_cast<int>(slot)};
    return open;
  }
  bool open = false;
  std::vector<int> last;
};

TEST(InprocEndpoints, are_linked_directly_all_to_all) {
  auto endpoints = make_inproc_endpoints(5, config_for("auto"));
  ASSERT_TRUE(endpoints.ok());
  for (auto& from : *endpoints)
    for (auto& to : *endpoints) {
      if (from->rank() == to->rank()) continue;
      const int word = from->rank() * 10 + to->rank();
      const Header header = header_of(MessageKind::data, 1);
      ASSERT_TRUE(from->link(to->rank())->send(header, &word, 4, 0).accepted);
    }
  for (auto& endpoint : *endpoints) {
    Notebook note(*endpoint);
    endpoint->poll(note);
    ASSERT_EQ(note.messages.size(), 4u);
    for (const Received& message : note.messages) {
      int word = 0;
      std::memcpy(&word, message.bytes.data(), 4);
      EXPECT_EQ(word, message.peer * 10 + endpoint->rank());
    }
  }
}

TEST(InprocEndpoints, a_slot_is_taken_only_when_it_is_visible) {
  Curtain curtain;
  auto endpoints = make_inproc_endpoints(2, config_for("auto"), &curtain);
  ASSERT_TRUE(endpoints.ok());
  Notebook note(*(*endpoints)[1]);
  const Header header = header_of(MessageKind::data, 1);
  ASSERT_TRUE((*endpoints)[0]->link(1)->send(header, "abc", 3, 0).accepted);
  for (int i = 0; i < 10; ++i) EXPECT_FALSE((*endpoints)[1]->poll(note));
  EXPECT_TRUE(note.messages.empty());
  EXPECT_EQ(curtain.last, (std::vector<int>{0, 1, 0}));
  curtain.open = true;
  EXPECT_TRUE((*endpoints)[1]->poll(note));
  EXPECT_EQ(note.messages.size(), 1u);
}

}  // namespace
}  // namespace tutti::test
