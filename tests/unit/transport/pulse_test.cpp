// Who is given up, and when, on a clock that the test turns.
#include "transport/pulse.hpp"

#include <gtest/gtest.h>

#include <array>
#include <new>
#include <utility>

namespace tutti::transport {
namespace {

using namespace std::chrono_literals;

struct QuietLink final : Link {
  std::string_view name() const override { return "quiet"; }
  std::size_t eager_bytes() const override { return 0; }
  Sent send(const Header&, const void*, std::size_t, std::uint64_t) override { return {}; }
  void release(std::uint64_t) override {}
  bool poll(MessageSink&) override { return false; }
  void forget(std::uint32_t) override {}
  void beat() override {
    ++beats;
    if (std::exchange(exhausted, false)) throw std::bad_alloc();
  }
  bool heard() override { return alive; }

  std::atomic<int> beats = 0;
  bool alive = true;
  bool exhausted = false;
};

class Pulses : public testing::Test {
 protected:
  static constexpr Nanoseconds kDead = 10s;

  Pulses()
      : window(*Window::create(0, WindowShape::of(1, 4096), false)),
        pulse({kDead, window.get(), [this] { ++calls; }},
              {{.peer = 1, .link = &links[0]}, {.peer = 2, .link = &links[1]}}),
        now(steady_clock().now()),
        began(now) {
    live(5s);
  }
  // Turns as the thread would; returns who was given up, with the time on the clock.
  std::vector<int> live(Nanoseconds time) {
    std::vector<int> gone;
    for (const Nanoseconds end = now + time; now < end; now += 100ms) {
      pulse.tick(now);
      for (const int peer : pulse.take_silent()) gone.push_back(peer);
      if (!gone.empty() && given_up_at.count() == 0) given_up_at = now;
    }
    return gone;
  }

  std::array<QuietLink, 2> links;
  std::shared_ptr<Window> window;
  int calls = 0;
  Pulse pulse;
  Nanoseconds now;
  Nanoseconds began;
  Nanoseconds given_up_at{0};
};

TEST_F(Pulses, beat_on_every_link_and_in_the_window) {
  EXPECT_GT(links[0].beats, 10);
  EXPECT_LT(links[0].beats, 20);
  EXPECT_EQ(window->head().pulse.load(), static_cast<std::uint64_t>(links[0].beats.load()));
}

TEST_F(Pulses, give_up_who_is_silent_after_dead_after_and_within_a_second) {
  const Nanoseconds stopped = now;
  links[1].alive = false;
  EXPECT_EQ(live(15s), std::vector{2});
  EXPECT_GE(given_up_at - stopped, kDead);
  EXPECT_LE(given_up_at - stopped, kDead + 1s);
  EXPECT_EQ(calls, 1);
  EXPECT_TRUE(live(15s).empty()) << "once";
}

TEST_F(Pulses, give_up_together_who_fell_silent_together) {
  links[1].alive = false;
  live(300ms);  // one beat's difference
  links[0].alive = false;
  EXPECT_EQ(live(15s), (std::vector{1, 2}));
  EXPECT_EQ(calls, 1);
}

TEST_F(Pulses, forgive_who_is_heard_again_in_time) {
  links[0].alive = false;
  EXPECT_TRUE(live(kDead - 100ms).empty());
  links[0].alive = true;
  live(200ms);
  links[0].alive = false;
  EXPECT_TRUE(live(kDead - 100ms).empty());
}

TEST_F(Pulses, blame_nobody_for_the_time_in_which_they_stood_still_themselves) {
  links[0].alive = links[1].alive = false;
  now += 60s;
  EXPECT_TRUE(live(kDead - 300ms).empty());
  links[0].alive = links[1].alive = true;
  EXPECT_TRUE(live(20s).empty());
}

TEST(Pulse, waits_for_the_first_beat_of_a_rank_that_still_joins) {
  QuietLink link;
  link.alive = false;
  auto window = *Window::create(0, WindowShape::of(1, 4096), false);
  Pulse pulse({1s, window.get(), [] {}}, {{.peer = 1, .link = &link}});
  const Nanoseconds began = steady_clock().now();
  for (Nanoseconds at{0}; at < 60s; at += 10ms) pulse.tick(began + at);
  EXPECT_TRUE(pulse.take_silent().empty());
  // It was stopped between joining and its first beat.
  pulse.expect_all();
  for (Nanoseconds at = 60s; at < 62s; at += 10ms) pulse.tick(began + at);
  EXPECT_EQ(pulse.take_silent(), std::vector<int>{1});
}

TEST(Pulse, that_gives_nobody_up_beats_all_the_same) {
  QuietLink link;
  auto window = *Window::create(0, WindowShape::of(1, 4096), false);
  Pulse pulse({0s, window.get(), [] {}}, {{.peer = 1, .link = &link}});
  const Nanoseconds began = steady_clock().now();
  for (Nanoseconds at{0}; at < 60s; at += 100ms) {
    pulse.tick(began + at);
    link.alive = false;
  }
  EXPECT_TRUE(pulse.take_silent().empty());
  EXPECT_GE(link.beats, 150);
  EXPECT_EQ(pulse.standstill(1), 0s);
}

TEST(Pulse, outlives_a_turn_without_memory) {
  QuietLink link;
  link.exhausted = true;
  auto window = *Window::create(0, WindowShape::of(1, 4096), false);
  Pulse pulse({500ms, window.get(), [] {}}, {{.peer = 1, .link = &link}});
  ASSERT_TRUE(pulse.start().ok());
  const Nanoseconds until = steady_clock().now() + 10s;
  while (link.beats < 3 && steady_clock().now() < until) std::this_thread::sleep_for(1ms);
  EXPECT_GE(link.beats, 3);
}

TEST(Pulse, knows_that_its_process_stood_still) {
  QuietLink near, far;
  auto window = *Window::create(0, WindowShape::of(1, 4096), false);
  Pulse pulse({1s, window.get(), [] {}}, {{.peer = 1, .link = &near}, {.peer = 2, .link = &far}});
  const Nanoseconds now = steady_clock().now();
  pulse.tick(now - 5s);
  EXPECT_GE(pulse.standstill(1), 5s) << "before its thread has had a turn";
  pulse.tick(now);
  EXPECT_GE(pulse.standstill(1), 5s) << "and after: what is heard first may have come long ago";
  // Everybody stood still, and one goes on.
  far.alive = false;
  pulse.tick(now + 100ms);
  EXPECT_EQ(pulse.standstill(1), 0s);
  EXPECT_GE(pulse.standstill(2), 5s);
}

}  // namespace
}  // namespace tutti::transport
