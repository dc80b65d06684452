// One rank of a host asks the store; what a leader that is gone costs.
#include "group/host_store.hpp"

#include <gtest/gtest.h>

#include <atomic>
#include <functional>
#include <thread>
#include <vector>

#include "core/auth.hpp"
#include "group/store_rounds.hpp"

namespace tutti::group {
namespace {

using std::chrono::milliseconds;

const Secret kSecret(std::string(32, 's'));

// Counts what is asked of it.
class CountedStore final : public Store {
 public:
  explicit CountedStore(std::shared_ptr<Store> inner) : inner_(std::move(inner)) {}
  std::atomic<int> told_all{0};

  Status set(const std::string& key, const std::string& value) override {
    return inner_->set(key, value);
  }
  Result<std::string> get(const std::string& key, milliseconds timeout) override {
    auto got = inner_->get(key, timeout);
    told_all += got.ok() && key.ends_with("/word/all");
    return got;
  }
  Status wait(const std::string& key, milliseconds timeout) override {
    return inner_->wait(key, timeout);
  }
  Result<std::int64_t> add(const std::string& key, std::int64_t amount) override {
    return inner_->add(key, amount);
  }
  Result<std::string> compare_set(const std::string& key, const std::string& expected,
                                  const std::string& desired) override {
    return inner_->compare_set(key, expected, desired);
  }
  Result<bool> remove(const std::string& key) override { return inner_->remove(key); }

 private:
  std::shared_ptr<Store> inner_;
};

constexpr int kRanks = 24;
constexpr int kHosts = 40;  // 16 below the store, 24 below the first two of them

// All of them meet, each with what `host_of` gives it; how many heard everybody.
int exchange(CountedStore& store, const std::function<HostStore(int)>& host_of) {
  std::atomic<int> right{0};
  std::vector<std::thread> threads;
  for (int rank = 0; rank < kRanks; ++rank)
    threads.emplace_back([&, rank] {
      GroupOptions options;
      options.rank = rank;
      options.size = kRanks;
      StoreRounds meeting(store, options, std::chrono::seconds(60), nullptr);
      if (!meeting.join().ok()) return;
      meeting.fan_out(host_of(rank));
      const auto heard = meeting.exchange("word", std::to_string(rank));
      bool all = heard.ok();
      for (int other = 0; all && other < kRanks; ++other)
        all = (*heard)[static_cast<std::size_t>(other)] == std::to_string(other);
      meeting.leave_host();
      right += all;
    });
  for (auto& thread : threads) thread.join();
  return right;
}

TEST(HostStore, whoever_comes_first_leads_and_the_others_find_it) {
  const std::string epoch = random_bytes(8);
  HostStore first = HostStore::find(epoch, kSecret);
  ASSERT_TRUE(first.store);
  EXPECT_TRUE(first.leads);
  HostStore second = HostStore::find(epoch, kSecret);
  ASSERT_TRUE(second.store);
  EXPECT_FALSE(second.leads);
  ASSERT_TRUE(first.store->set("word", "heard").ok());
  const auto word = second.store->get("word", milliseconds(5000));
  ASSERT_TRUE(word.ok()) << word.status().to_string();
  EXPECT_EQ(*word, "heard");
}

TEST(HostStore, without_the_secret_there_is_none) {
  const std::string epoch = random_bytes(8);
  const HostStore first = HostStore::find(epoch, kSecret);
  ASSERT_TRUE(first.leads);
  EXPECT_FALSE(HostStore::find(epoch, Secret(std::string(32, 'x'))).store);
}

TEST(HostStore, the_store_tells_one_rank_of_a_host_and_the_word_reaches_all) {
  const std::string epoch = random_bytes(8);
  CountedStore store(make_memory_store());
  EXPECT_EQ(exchange(store, [&](int) { return HostStore::find(epoch, kSecret); }), kRanks);
  EXPECT_LE(store.told_all, 1);  // none, if rank 0 leads
}

TEST(HostStore, whose_leader_is_gone_asks_the_store) {
  const std::string epoch = random_bytes(8);
  CountedStore store(make_memory_store());
  HostStore leader = HostStore::find(epoch, kSecret);
  ASSERT_TRUE(leader.leads);
  std::atomic<int> came{0};
  const auto join = [&](int) {
    HostStore mine = HostStore::find(epoch, kSecret);
    if (++came == kRanks) leader = {};  // it tells nobody anything
    return mine;
  };
  EXPECT_EQ(exchange(store, join), kRanks);
  EXPECT_GE(store.told_all, kRanks - 1);
}

// ---- a rank on each of many hosts

Config on_loopback() {
  Config config;
  config.interface = "lo";
  return config;
}

// All of them meet twice, and climb between; how many heard everybody.
int exchange_up_a_tree(CountedStore& store, const std::function<HostDoors()>& make_doors) {
  std::atomic<int> right{0};
  std::vector<std::thread> threads;
  for (int rank = 0; rank < kHosts; ++rank)
    threads.emplace_back([&, rank] {
      GroupOptions options;
      options.rank = rank;
      options.size = kHosts;
      StoreRounds meeting(store, options, std::chrono::seconds(60), nullptr);
      if (!meeting.join().ok()) return;
      meeting.fan_out(HostStore::find(random_bytes(8), kSecret));
      if (!meeting.exchange("hello", "hello").ok()) return;
      meeting.climb(make_doors());
      const auto heard = meeting.exchange("word", std::to_string(rank));
      bool all = heard.ok();
      for (int other = 0; all && other < kHosts; ++other)
        all = (*heard)[static_cast<std::size_t>(other)] == std::to_string(other);
      meeting.leave_host();
      right += all;
    });
  for (auto& thread : threads) thread.join();
  return right;
}

TEST(HostTree, the_store_tells_some_hosts_and_the_word_reaches_all) {
  CountedStore store(make_memory_store());
  const auto doors = [] { return HostDoors::of_network(on_loopback(), kSecret); };
  EXPECT_EQ(exchange_up_a_tree(store, doors), kHosts);
  // Sixteen; more where hosts lose patience on a busy machine.
  EXPECT_LT(store.told_all, kHosts - 1);
}

TEST(HostTree, hosts_that_cannot_reach_each_other_ask_the_store) {
  CountedStore store(make_memory_store());
  std::atomic<int> opened{0};
  const auto doors = [&] {
    HostDoors doors = HostDoors::of_network(on_loopback(), kSecret);
    // Of two that have hosts below them one has no door, and the other's is behind a wall.
    doors.open = [&opened, open = doors.open]() -> Result<HostDoor> {
      if (opened++ == 0) return Status(Code::unsupported, "no door");
      return open();
    };
    doors.reach = [](const std::string&) -> Result<std::shared_ptr<Store>> {
      return Status(Code::timed_out, "a wall");
    };
    return doors;
  };
  EXPECT_EQ(exchange_up_a_tree(store, doors), kHosts);
  EXPECT_EQ(opened, 2);
  EXPECT_GE(store.told_all, kHosts - 1);
}

TEST(HostTree, below_a_host_that_fell_silent_asks_the_store) {
  CountedStore store(make_memory_store());
  const auto doors = [] {
    HostDoors doors = HostDoors::of_network(on_loopback(), kSecret);
    doors.reach = [](const std::string&) -> Result<std::shared_ptr<Store>> {
      return make_memory_store();  // in which nobody says anything
    };
    return doors;
  };
  EXPECT_EQ(exchange_up_a_tree(store, doors), kHosts);
  EXPECT_GE(store.told_all, kHosts - 1);
}

}  // namespace
}  // namespace tutti::group
