#include "contract/store_contract.hpp"

#include <gmock/gmock.h>

#include <algorithm>
#include <latch>
#include <limits>
#include <thread>
#include <vector>

namespace tutti::contract {
namespace {

using testing::HasSubstr;

#define EXPECT_OK(expression) EXPECT_EQ((expression).to_string(), "ok")

TEST_P(StoreContract, a_value_that_was_set_is_got_by_everybody) {
  EXPECT_OK(store_->set("greeting", "hello"));
  auto value = site_->join()->get("greeting", kLong);
  ASSERT_TRUE(value.ok()) << value.status().to_string();
  EXPECT_EQ(*value, "hello");
}

TEST_P(StoreContract, set_replaces) {
  EXPECT_OK(store_->set("key", "first and longer"));
  EXPECT_OK(store_->set("key", "second"));
  EXPECT_EQ(*store_->get("key", kLong), "second");
}

TEST_P(StoreContract, values_are_bytes) {
  const std::string value("zero \0 newline \n high \xff end", 27);
  EXPECT_OK(store_->set("bytes", value));
  EXPECT_EQ(*site_->join()->get("bytes", kLong), value);
  EXPECT_OK(store_->set("empty", ""));
  auto empty = site_->join()->get("empty", kLong);
  ASSERT_TRUE(empty.ok());
  EXPECT_EQ(*empty, "");
}

TEST_P(StoreContract, get_waits_until_somebody_sets) {
  auto other = site_->join();
  std::latch about_to_wait(1);
  std::thread setter([&] {
    about_to_wait.wait();
    EXPECT_OK(other->set("late", "came"));
  });
  about_to_wait.count_down();
  auto value = store_->get("late", kLong);
  setter.join();
  ASSERT_TRUE(value.ok()) << value.status().to_string();
  EXPECT_EQ(*value, "came");
}

TEST_P(StoreContract, a_get_that_waits_holds_up_nobody_on_the_same_handle) {
  std::thread waiter([&] { EXPECT_EQ(*store_->get("b", kLong), "2"); });
  // Were the handle blocked, the waiter would never get its value.
  EXPECT_OK(store_->set("a", "1"));
  EXPECT_EQ(*store_->get("a", kLong), "1");
  EXPECT_OK(store_->set("b", "2"));
  waiter.join();
}

TEST_P(StoreContract, add_and_compare_set_end_waits_too) {
  auto other = site_->join();
  std::thread adder([&] { EXPECT_OK(other->add("count", 5).status()); });
  EXPECT_EQ(*store_->get("count", kLong), "5");
  adder.join();
  std::thread comparer([&] { EXPECT_OK(other->compare_set("leader", "", "me").status()); });
  EXPECT_OK(store_->wait("leader", kLong));
  comparer.join();
}

TEST_P(StoreContract, a_wait_ends_at_its_deadline_and_names_the_key) {
  const auto start = std::chrono::steady_clock::now();
  auto value = store_->get("nobody/sets/this", kShort);
  EXPECT_GE(std::chrono::steady_clock::now() - start, kShort);
  ASSERT_FALSE(value.ok());
  EXPECT_EQ(value.status().code(), Code::timed_out);
  EXPECT_THAT(value.status().message(), HasSubstr("nobody/sets/this"));
  const Status status = store_->wait("nor this", kShort);
  EXPECT_EQ(status.code(), Code::timed_out);
  EXPECT_THAT(status.message(), HasSubstr("nor this"));
}

TEST_P(StoreContract, no_time_means_look_once) {
  EXPECT_EQ(store_->get("absent", std::chrono::milliseconds(0)).status().code(), Code::timed_out);
  EXPECT_EQ(store_->get("absent", std::chrono::milliseconds(-5)).status().code(), Code::timed_out);
  EXPECT_OK(store_->set("present", "x"));
  EXPECT_EQ(*store_->get("present", std::chrono::milliseconds(0)), "x");
  EXPECT_EQ(*store_->get("present", std::chrono::milliseconds::max()), "x");
}

TEST_P(StoreContract, add_counts_in_decimal_from_zero) {
  EXPECT_EQ(*store_->add("n", 3), 3);
  EXPECT_EQ(*site_->join()->add("n", -10), -7);
  EXPECT_EQ(*store_->get("n", kLong), "-7");
  EXPECT_OK(store_->set("n", "40"));
  EXPECT_EQ(*store_->add("n", 2), 42);
}

TEST_P(StoreContract, add_refuses_what_is_no_number_and_leaves_it) {
  EXPECT_OK(store_->set("word", "forty"));
  auto sum = store_->add("word", 1);
  ASSERT_FALSE(sum.ok());
  EXPECT_EQ(sum.status().code(), Code::invalid_argument);
  EXPECT_THAT(sum.status().message(), HasSubstr("word"));
  EXPECT_EQ(*store_->get("word", kLong), "forty");
  EXPECT_OK(store_->add("big", std::numeric_limits<std::int64_t>::max()).status());
  EXPECT_EQ(store_->add("big", 1).status().code(), Code::invalid_argument);
}

TEST_P(StoreContract, concurrent_adds_all_count_and_see_different_sums) {
  constexpr int kThreads = 4;
  constexpr int kAdds = 50;
  std::vector<std::thread> threads;
  std::vector<std::vector<std::int64_t>> sums(kThreads);
  for (int t = 0; t < kThreads; ++t)
    threads.emplace_back([&, t] {
      // Half of the threads share a handle.
      auto mine = t % 2 == 0 ? store_ : site_->join();
      for (int i = 0; i < kAdds; ++i) {
        auto sum = mine->add("counter", 1);
        ASSERT_TRUE(sum.ok()) << sum.status().to_string();
        sums[t].push_back(*sum);
      }
    });
  for (auto& thread : threads) thread.join();
  std::vector<std::int64_t> all;
  for (const auto& some : sums) all.insert(all.end(), some.begin(), some.end());
  std::sort(all.begin(), all.end());
  for (int i = 0; i < kThreads * kAdds; ++i) ASSERT_EQ(all[i], i + 1);
}

TEST_P(StoreContract, compare_set_sets_only_what_is_as_expected) {
  EXPECT_EQ(*store_->compare_set("k", "something", "new"), "");  // absent: not "something"
  EXPECT_EQ(store_->get("k", kShort).status().code(), Code::timed_out);
  EXPECT_EQ(*store_->compare_set("k", "", "first"), "first");
  EXPECT_EQ(*site_->join()->compare_set("k", "", "second"), "first");
  EXPECT_EQ(*store_->compare_set("k", "first", "second"), "second");
  EXPECT_EQ(*store_->get("k", kLong), "second");
}

TEST_P(StoreContract, one_of_many_wins_a_compare_set) {
  constexpr int kThreads = 6;
  std::vector<std::string> seen(kThreads);
  std::vector<std::thread> threads;
  for (int t = 0; t < kThreads; ++t)
    threads.emplace_back([&, t] {
      auto held = site_->join()->compare_set("leader", "", std::to_string(t));
      ASSERT_TRUE(held.ok()) << held.status().to_string();
      seen[t] = *held;
    });
  for (auto& thread : threads) thread.join();
  for (const std::string& one : seen) EXPECT_EQ(one, seen[0]);
  EXPECT_EQ(*store_->get("leader", kLong), seen[0]);
}

TEST_P(StoreContract, remove_says_whether_it_was_there) {
  EXPECT_OK(store_->set("gone", "soon"));
  EXPECT_TRUE(*site_->join()->remove("gone"));
  EXPECT_FALSE(*store_->remove("gone"));
  EXPECT_EQ(store_->get("gone", kShort).status().code(), Code::timed_out);
  EXPECT_EQ(*store_->add("gone", 1), 1);
}

TEST_P(StoreContract, the_largest_value_goes_through_and_a_larger_one_is_refused) {
  std::string value(Store::kMaxValueBytes, 'v');
  value[12345] = 'x';
  EXPECT_OK(store_->set("large", value));
  auto got = site_->join()->get("large", kLong);
  ASSERT_TRUE(got.ok()) << got.status().to_string();
  EXPECT_TRUE(*got == value);
  value += '!';
  const Status status = store_->set("larger", value);
  EXPECT_EQ(status.code(), Code::invalid_argument);
  EXPECT_THAT(status.message(), HasSubstr("larger"));
  EXPECT_EQ(store_->compare_set("larger", "", value).status().code(), Code::invalid_argument);
}

TEST_P(StoreContract, keys_over_the_bound_are_refused_everywhere) {
  const std::string key(Store::kMaxKeyBytes + 1, 'k');
  EXPECT_EQ(store_->set(key, "v").code(), Code::invalid_argument);
  EXPECT_EQ(store_->get(key, kShort).status().code(), Code::invalid_argument);
  EXPECT_EQ(store_->wait(key, kShort).code(), Code::invalid_argument);
  EXPECT_EQ(store_->add(key, 1).status().code(), Code::invalid_argument);
  EXPECT_EQ(store_->compare_set(key, "", "v").status().code(), Code::invalid_argument);
  EXPECT_EQ(store_->remove(key).status().code(), Code::invalid_argument);
  // And the store goes on.
  EXPECT_OK(store_->set("ok", "v"));
  EXPECT_EQ(*store_->get("ok", kLong), "v");
}

TEST_P(StoreContract, ranks_meet_in_a_barrier_of_adds) {
  constexpr int kRanks = 5;
  std::vector<std::thread> ranks;
  for (int r = 0; r < kRanks; ++r)
    ranks.emplace_back([&] {
      auto mine = site_->join();
      for (int round = 0; round < 5; ++round) {
        const std::string name = "round" + std::to_string(round);
        auto arrived = mine->add(name, 1);
        ASSERT_TRUE(arrived.ok()) << arrived.status().to_string();
        if (*arrived == kRanks) {
          EXPECT_OK(mine->set(name + "/open", "1"));
        }
        EXPECT_OK(mine->wait(name + "/open", kLong));
      }
    });
  for (auto& rank : ranks) rank.join();
}

}  // namespace
}  // namespace tutti::contract
