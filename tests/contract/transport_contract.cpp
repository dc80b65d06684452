// What every transport promises, asked of each that has enrolled.
#include "contract/transport_contract.hpp"

#include <gmock/gmock.h>
#include <unistd.h>

#include <atomic>

namespace tutti::test {

GTEST_ALLOW_UNINSTANTIATED_PARAMETERIZED_TEST(TransportContract);
GTEST_ALLOW_UNINSTANTIATED_PARAMETERIZED_TEST(SleepingContract);

namespace {

TEST_P(TransportContract, links_are_of_the_kind_that_was_forced) {
  EXPECT_EQ(ranks.link(0, 1).name(), GetParam().name);
  EXPECT_EQ(ranks.link(1, 0).name(), GetParam().name);
  EXPECT_EQ(ranks.endpoints[0]->link(0), nullptr);
}

TEST_P(TransportContract, messages_arrive_in_the_order_they_were_sent_with_their_headers) {
  constexpr int kCount = 3000;
  int next = 0;
  const auto push = [&] {
    for (; next < kCount; ++next) {
      Header header = header_of(MessageKind::eager, static_cast<std::uint64_t>(next));
      header.step = 3;
      header.tag = 4;
      header.extra = 5;
      header.flags = kInternal;
      const std::string text = pattern(static_cast<std::size_t>(next % 73));
      if (!ranks.link(0, 1).send(header, text.data(), text.size(), 0).accepted) return false;
    }
    return ranks.note(1).messages.size() == kCount;
  };
  ASSERT_TRUE(ranks.poll_until(push));
  for (int i = 0; i < kCount; ++i) {
    const Received& message = ranks.note(1).messages[static_cast<std::size_t>(i)];
    ASSERT_EQ(message.header.sequence, static_cast<std::uint64_t>(i));
    ASSERT_EQ(message.bytes, pattern(static_cast<std::size_t>(i % 73)));
    ASSERT_EQ(message.header.step + message.header.tag, 7u);
    ASSERT_EQ(message.header.extra, 5u);
    ASSERT_EQ(message.header.flags, kInternal);
    ASSERT_EQ(message.header.channel, 1u);
  }
}

TEST_P(TransportContract, payloads_of_every_size_and_alignment_arrive_whole) {
  std::uint64_t sequence = 1;
  for (const std::size_t bytes : {0ul, 1ul, 71ul, 72ul, 73ul, 127ul, 4095ul, 4096ul, 4097ul,
                                  16384ul, 16385ul, 65537ul, 200003ul, 1048579ul})
    for (const std::size_t shift : {0ul, 1ul, 7ul}) {
      const std::string text = pattern(bytes + shift, static_cast<unsigned>(sequence));
      const std::string payload = text.substr(shift);
      const std::string unaligned = std::string(shift, 'x') + payload;
      Header header = header_of(MessageKind::data, sequence);
      std::size_t offset = 0;
      const bool all = ranks.poll_until([&] {
        header.offset = offset;
        const Sent sent = ranks.link(0, 1).send(header, unaligned.data() + shift + offset,
                                                bytes - offset, sequence);
        if (sent.accepted) offset += sent.bytes;
        return sent.accepted && offset == bytes;
      });
      ASSERT_TRUE(all);
      ASSERT_TRUE(ranks.poll_until([&] { return arrived(1, sequence) == bytes; }));
      ASSERT_EQ(assembled(1, sequence, bytes), payload) << bytes << " +" << shift;
      // What was lent must come back before the buffer goes.
      ranks.endpoints[0]->link(1)->forget(1);
      ++sequence;
    }
}

TEST_P(TransportContract, eager_and_control_messages_go_whole_and_are_never_lent) {
  for (const MessageKind kind : {MessageKind::eager, MessageKind::arrive, MessageKind::abort}) {
    std::string text = pattern(4096);
    const Sent sent = ranks.link(0, 1).send(header_of(kind, 9), text.data(), text.size(), 5);
    EXPECT_TRUE(sent.accepted);
    EXPECT_FALSE(sent.lent);
    EXPECT_EQ(sent.bytes, text.size());
    std::fill(text.begin(), text.end(), '!');  // ours again at once
  }
  ASSERT_TRUE(ranks.poll_until([&] { return ranks.note(1).messages.size() == 3; }));
  for (const Received& message : ranks.note(1).messages) EXPECT_EQ(message.bytes, pattern(4096));
  EXPECT_TRUE(ranks.note(0).sent.empty());
}

TEST_P(TransportContract, every_loan_is_reported_once_and_nothing_else_is) {
  const std::string text = pattern(3'000'000);
  const auto lent = send_all(0, 1, header_of(MessageKind::bulk, 2), text);
  ASSERT_TRUE(ranks.poll_until(
      [&] { return arrived(1, 2) == text.size() && ranks.note(0).sent.size() == lent.size(); }));
  for (int i = 0; i < 100; ++i) ranks.poll(0);
  // In whatever order: a message may go by several ways at once.
  EXPECT_THAT(ranks.note(0).sent, testing::UnorderedElementsAreArray(lent));
  EXPECT_EQ(assembled(1, 2, text.size()), text);
}

TEST_P(TransportContract, a_full_link_refuses_and_takes_again_when_the_peer_has_read) {
  const std::string text = pattern(4000);
  std::size_t accepted = 0;
  // Nobody polls rank 1: sooner or later there is no room.
  while (true) {
    const Sent sent =
        ranks.link(0, 1).send(header_of(MessageKind::eager, accepted), text.data(), text.size(), 0);
    if (!sent.accepted) break;
    ASSERT_EQ(sent.bytes, text.size());
    ASSERT_LT(++accepted, 100'000u);
  }
  ASSERT_GT(accepted, 0u);
  bool again = false;
  ASSERT_TRUE(ranks.poll_until([&] {
    again = again || ranks.link(0, 1)
                         .send(header_of(MessageKind::eager, accepted), text.data(), text.size(), 0)
                         .accepted;
    return again && ranks.note(1).messages.size() == accepted + 1;
  }));
  for (std::size_t i = 0; i <= accepted; ++i) {
    ASSERT_EQ(ranks.note(1).messages[i].header.sequence, i);
    ASSERT_EQ(ranks.note(1).messages[i].bytes, text);
  }
}

TEST_P(TransportContract, control_messages_are_always_accepted_and_stay_in_order) {
  constexpr std::size_t kCount = 5000;
  for (std::size_t i = 0; i < kCount; ++i) {
    const std::string text = pattern(i % 2 == 0 ? 40 : 700, static_cast<unsigned>(i));
    const Sent sent =
        ranks.link(0, 1).send(header_of(MessageKind::arrive, i), text.data(), text.size(), 0);
    ASSERT_TRUE(sent.accepted);
    ASSERT_EQ(sent.bytes, text.size());
  }
  ASSERT_TRUE(ranks.poll_until([&] { return ranks.note(1).messages.size() == kCount; }));
  for (std::size_t i = 0; i < kCount; ++i) {
    ASSERT_EQ(ranks.note(1).messages[i].header.sequence, i);
    ASSERT_EQ(ranks.note(1).messages[i].bytes,
              pattern(i % 2 == 0 ? 40 : 700, static_cast<unsigned>(i)));
  }
}

TEST_P(TransportContract, views_stay_readable_until_they_are_released) {
  ranks.note(1).keep = true;
  const std::string text = pattern(5000);
  for (std::uint64_t i = 0; i < 3; ++i)
    ASSERT_TRUE(ranks.link(0, 1)
                    .send(header_of(MessageKind::eager, i), text.data(), text.size(), 0)
                    .accepted);
  ASSERT_TRUE(ranks.poll_until([&] { return ranks.note(1).messages.size() == 3; }));
  for (const Received& message : ranks.note(1).messages) {
    ASSERT_NE(message.lease, 0u);
    EXPECT_EQ(std::memcmp(message.view, text.data(), text.size()), 0);
    EXPECT_FALSE(ranks.link(1, 0).revoked(message.lease));
    ranks.link(1, 0).release(message.lease);
  }
}

// What one group does not read yet must not keep another group's messages from passing.
TEST_P(TransportContract, views_that_are_held_do_not_stop_the_link) {
  ranks.note(1).keep = true;
  const std::string small = pattern(1000);
  const std::string large = pattern(30'000, 2);
  constexpr std::uint64_t kCount = 300;
  std::uint64_t next = 0;
  std::string text;
  ASSERT_TRUE(ranks.poll_until([&] {
    for (; next < kCount; ++next) {
      text = next % 2 == 0 ? small : large;
      if (!ranks.link(0, 1)
               .send(header_of(MessageKind::eager, next), text.data(), text.size(), 0)
               .accepted)
        return false;
    }
    return ranks.note(1).messages.size() == kCount;
  }));
  for (std::uint64_t i = 0; i < kCount; ++i) {
    const Received& message = ranks.note(1).messages[i];
    const std::string& expected = i % 2 == 0 ? small : large;
    ASSERT_EQ(message.header.sequence, i);
    ASSERT_NE(message.lease, 0u);
    ASSERT_EQ(std::memcmp(message.view, expected.data(), expected.size()), 0) << i;
    ASSERT_FALSE(ranks.link(1, 0).revoked(message.lease));
  }
  for (const Received& message : ranks.note(1).messages) ranks.link(1, 0).release(message.lease);
}

TEST_P(SleepingContract, several_threads_send_at_the_same_time_without_mixing) {
  constexpr int kThreads = 3;
  constexpr std::uint64_t kEach = 400;
  std::atomic<bool> stop{false};
  std::thread receiver([&] {
    const auto limit = std::chrono::steady_clock::now() + kWaitAtMost;
    while (ranks.note(1).messages.size() < kThreads * kEach &&
           std::chrono::steady_clock::now() < limit)
      ranks.poll(1);
    stop = true;
  });
  std::thread poller([&] {
    while (!stop) ranks.poll(0);
  });
  std::vector<std::thread> senders;
  for (int t = 0; t < kThreads; ++t)
    senders.emplace_back([&, t] {
      for (std::uint64_t i = 0; i < kEach && !stop;) {
        const auto channel = static_cast<std::uint32_t>(t);
        const std::string text = pattern(i % 3 == 0 ? 300 : 20, channel);
        // Eager: copied, so the thread may go on at once.
        if (ranks.link(0, 1)
                .send(header_of(MessageKind::eager, i, channel), text.data(), text.size(), 0)
                .accepted)
          ++i;
        else
          std::this_thread::yield();
      }
    });
  for (std::thread& sender : senders) sender.join();
  receiver.join();
  poller.join();
  ASSERT_EQ(ranks.note(1).messages.size(), kThreads * kEach);
  std::vector<std::uint64_t> next(kThreads, 0);
  for (const Received& message : ranks.note(1).messages) {
    ASSERT_EQ(message.header.sequence, next[message.header.channel]++);
    ASSERT_EQ(message.bytes,
              pattern(message.header.sequence % 3 == 0 ? 300 : 20, message.header.channel));
  }
}

TEST_P(SleepingContract, a_sleeper_is_woken_by_a_message) {
  std::atomic<bool> asleep{false};
  std::thread sleeper([&] {
    const auto limit = std::chrono::steady_clock::now() + kWaitAtMost;
    while (ranks.note(1).messages.empty() && std::chrono::steady_clock::now() < limit)
      ranks.endpoints[1]->sleep(kWaitAtMost, false, [&] {
        asleep = true;
        return ranks.endpoints[1]->poll(ranks.note(1));
      });
  });
  while (!asleep) std::this_thread::yield();
  const auto begin = std::chrono::steady_clock::now();
  ASSERT_TRUE(ranks.link(0, 1).send(header_of(MessageKind::data, 1), "abc", 3, 0).accepted);
  sleeper.join();
  EXPECT_LT(std::chrono::steady_clock::now() - begin, kWaitAtMost / 2);
  ASSERT_EQ(ranks.note(1).messages.size(), 1u);
  EXPECT_EQ(ranks.note(1).messages[0].bytes, "abc");
}

TEST_P(SleepingContract, a_sleeper_is_woken_by_wake_even_if_it_came_first) {
  ranks.endpoints[1]->wake();
  const auto begin = std::chrono::steady_clock::now();
  ranks.endpoints[1]->sleep(kWaitAtMost, true,
                            [&] { return ranks.endpoints[1]->poll(ranks.note(1)); });
  std::atomic<bool> asleep{false};
  std::atomic<bool> stop{false};
  std::thread sleeper([&] {
    while (!stop)
      ranks.endpoints[1]->sleep(kWaitAtMost, true, [&] {
        asleep = true;
        return stop.load();
      });
  });
  while (!asleep) std::this_thread::yield();
  stop = true;
  ranks.endpoints[1]->wake();
  sleeper.join();
  EXPECT_LT(std::chrono::steady_clock::now() - begin, kWaitAtMost / 2);
}

TEST_P(SleepingContract, a_sender_without_room_is_woken_when_the_peer_has_read) {
  const std::string text = pattern(50);
  std::uint64_t accepted = 0;
  while (ranks.link(0, 1)
             .send(header_of(MessageKind::eager, accepted), text.data(), text.size(), 0)
             .accepted)
    ++accepted;
  std::atomic<bool> asleep{false};
  std::atomic<bool> through{false};
  std::thread sender([&] {
    const auto limit = std::chrono::steady_clock::now() + kWaitAtMost;
    while (std::chrono::steady_clock::now() < limit) {
      if (ranks.link(0, 1)
              .send(header_of(MessageKind::eager, accepted), text.data(), text.size(), 0)
              .accepted) {
        through = true;
        return;
      }
      ranks.endpoints[0]->sleep(kWaitAtMost, false, [&] {
        asleep = true;
        return ranks.endpoints[0]->poll(ranks.note(0));
      });
    }
  });
  while (!asleep && !through) std::this_thread::yield();  // room may have come meanwhile
  const auto begin = std::chrono::steady_clock::now();
  while (!through && std::chrono::steady_clock::now() - begin < kWaitAtMost) ranks.poll(1);
  sender.join();
  EXPECT_LT(std::chrono::steady_clock::now() - begin, kWaitAtMost / 2);
  EXPECT_TRUE(ranks.poll_until([&] { return ranks.note(1).messages.size() == accepted + 1; }));
}

TEST_P(TransportContract, last_words_arrive_before_the_end_is_reported) {
  for (std::uint64_t i = 0; i < 200; ++i)  // more than a ring holds
    ASSERT_TRUE(ranks.link(0, 1).send(header_of(MessageKind::goodbye, i), nullptr, 0, 0).accepted);
  ASSERT_TRUE(ranks.leave(0, [&] { return !ranks.note(1).downs.empty(); }));
  EXPECT_EQ(ranks.note(1).messages.size(), 200u);
  EXPECT_EQ(ranks.note(1).downs[0].first, 0);
  EXPECT_EQ(ranks.note(1).downs[0].second.code(), Code::peer_lost);
  EXPECT_EQ(ranks.note(1).downs[0].second.peer(), 0);
  // Once, and sends are dropped from now on.
  for (int i = 0; i < 1000; ++i) ranks.poll(1);
  EXPECT_EQ(ranks.note(1).downs.size(), 1u);
  EXPECT_TRUE(ranks.link(1, 0).send(header_of(MessageKind::data, 1), "abc", 3, 0).accepted);
}

TEST_P(TransportContract, after_forget_a_loan_is_reported_no_more) {
  ranks.note(1).keep = true;
  std::string text = pattern(8'000'000);
  Header header = header_of(MessageKind::data, 4, 77);
  // Until the link holds a loan, or takes no more.
  Sent sent;
  for (std::size_t offset = 0; offset < text.size() && !sent.lent; offset += sent.bytes) {
    header.offset = offset;
    sent = ranks.link(0, 1).send(header, text.data() + offset, text.size() - offset, 1);
    if (!sent.accepted) break;
  }
  ranks.link(0, 1).forget(77);
  std::string().swap(text);  // address sanitizer sees any later use
  ranks.note(1).keep = false;
  ranks.note(0).sent.clear();
  // A message of another channel passes, so that everything before it has been dealt with.
  ASSERT_TRUE(ranks.link(0, 1).send(header_of(MessageKind::arrive, 5, 78), "x", 1, 0).accepted);
  if (GetParam().name != "inproc") {  // there the view of freed memory must not be read
    ASSERT_TRUE(ranks.poll_until([&] {
      return !ranks.note(1).messages.empty() && ranks.note(1).messages.back().header.sequence == 5;
    }));
  }
  for (int i = 0; i < 100; ++i) ranks.poll(0);
  EXPECT_TRUE(ranks.note(0).sent.empty());
}

TEST_P(SleepingContract, whereabouts_name_the_process) {
  EXPECT_NE(ranks.endpoints[0]->whereabouts(1).find("pid " + std::to_string(::getpid())),
            std::string::npos);
}

}  // namespace
}  // namespace tutti::test
