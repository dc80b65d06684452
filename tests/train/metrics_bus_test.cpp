// What a step logs: the same bits however it is waited for, one error for all, never behind a bucket.
#include "tutti/train/metrics_bus.hpp"

#include <gmock/gmock.h>

#include <csignal>
#include <cstring>
#include <limits>

#include "support/worlds.hpp"

namespace tutti::test {
namespace {

using testing::HasSubstr;
using train::Metrics;
using train::MetricsBus;

class Bus : public WorldTest {};
class BusBesideABucket : public WorldTest {};

std::unique_ptr<MetricsBus> make_bus(Context& here, bool asynchronous) {
  auto bus = MetricsBus::create(*here.group, asynchronous);
  EXPECT_TRUE(bus.ok()) << bus.status().to_string();
  return bus.ok() ? std::move(*bus) : nullptr;
}

// Values whose sum depends on the order in which they are added.
double value_of(int rank, int step, int name) {
  return (rank % 2 == 0 ? 1e16 : 1.0 / 3) / (1 + step) + rank * 0.1 + name;
}
constexpr const char* kNames[] = {"loss_sum", "tokens", "grad_norm"};

void add_step(MetricsBus& bus, int rank, int step) {
  for (int name = 0; name < 3; ++name) bus.add(kNames[name], value_of(rank, step, name));
}

std::uint64_t bits_of(double value) {
  std::uint64_t bits = 0;
  std::memcpy(&bits, &value, sizeof bits);
  return bits;
}

TEST_P(Bus, sums_in_rank_order_with_the_same_bits_sync_and_async) {
  in_world([](Context& here) {
    auto sync = make_bus(here, false);
    auto async = make_bus(here, true);
    ASSERT_TRUE(sync && async);
    constexpr int kSteps = 12;
    std::vector<Metrics> now, later;
    for (int step = 0; step < kSteps; ++step) {
      for (MetricsBus* bus : {sync.get(), async.get()}) {
        add_step(*bus, here.rank, step);
        const Status status = bus->publish(step);
        ASSERT_TRUE(status.ok()) << status.to_string();
      }
      auto at_once = sync->take(false);
      ASSERT_TRUE(at_once.ok() && *at_once)
          << "a synchronous bus has its sums when publish returns";
      now.push_back(**at_once);
      // Of the asynchronous one, the last step but one is read.
      if (step == 0) continue;
      auto before = async->take(true);
      ASSERT_TRUE(before.ok() && *before) << before.status().to_string();
      later.push_back(**before);
    }
    auto last = async->take(true);
    ASSERT_TRUE(last.ok() && *last);
    later.push_back(**last);
    for (int step = 0; step < kSteps; ++step) {
      const auto at = static_cast<std::size_t>(step);
      EXPECT_EQ(now[at].step, step);
      EXPECT_EQ(later[at].step, step);
      ASSERT_EQ(now[at].sums.size(), 3u);
      for (int name = 0; name < 3; ++name) {
        double expected = value_of(0, step, name);
        for (int rank = 1; rank < here.size; ++rank) expected += value_of(rank, step, name);
        EXPECT_EQ(now[at].sums[static_cast<std::size_t>(name)].first, kNames[name]);
        EXPECT_EQ(bits_of(*now[at].find(kNames[name])), bits_of(expected));
        EXPECT_EQ(bits_of(*later[at].find(kNames[name])), bits_of(expected));
      }
    }
  });
}

TEST_P(Bus, has_a_step_by_the_end_of_the_next_but_one_without_being_asked_to_wait) {
  in_world([](Context& here) {
    auto bus = make_bus(here, true);
    ASSERT_TRUE(bus);
    for (int step = 0; step < 8; ++step) {
      add_step(*bus, here.rank, step);
      ASSERT_TRUE(bus->publish(step).ok());
      if (step < 2) continue;
      auto line = bus->take(false);  // publish has waited for it, if it had to
      ASSERT_TRUE(line.ok() && *line) << "step " << step - 2 << " is not there";
      EXPECT_EQ((*line)->step, step - 2);
    }
  });
}

TEST_P(Bus, names_may_change_from_step_to_step_and_repeat_within_one) {
  in_world([](Context& here) {
    auto bus = make_bus(here, false);
    ASSERT_TRUE(bus);
    bus->add("loss", 1);
    bus->add("loss", 2);
    bus->add("spikes", std::numeric_limits<double>::infinity());
    ASSERT_TRUE(bus->publish(1).ok());
    ASSERT_TRUE(bus->publish(2).ok());  // nothing to log
    bus->add("tokens", 5);
    ASSERT_TRUE(bus->publish(3).ok());
    auto first = bus->take(true);
    ASSERT_TRUE(first.ok() && *first);
    EXPECT_EQ((*first)->find("loss"), 3.0 * here.size);
    EXPECT_EQ((*first)->find("spikes"), std::numeric_limits<double>::infinity());
    EXPECT_EQ((*first)->find("tokens"), std::nullopt);
    auto second = bus->take(true);
    ASSERT_TRUE(second.ok() && *second);
    EXPECT_TRUE((*second)->sums.empty());
    auto third = bus->take(true);
    ASSERT_TRUE(third.ok() && *third);
    EXPECT_EQ((*third)->find("tokens"), 5.0 * here.size);
    auto none = bus->take(true);
    ASSERT_TRUE(none.ok());
    EXPECT_FALSE(none->has_value());
  });
}

// Every rank publishes good steps, then `spoil` makes the last rank's step 5 differ.
void expect_mismatch(Context& here, bool asynchronous,
                     const std::function<void(MetricsBus&, std::int64_t&)>& spoil) {
  if (here.size == 1) return;
  auto bus = make_bus(here, asynchronous);
  ASSERT_TRUE(bus);
  std::int64_t step = 4;
  add_step(*bus, here.rank, 4);
  ASSERT_TRUE(bus->publish(step++).ok());
  ASSERT_TRUE(bus->take(true).ok());
  meet(here, asynchronous ? "async" : "sync");  // a failure ends whatever is under way
  add_step(*bus, here.rank, 5);
  if (here.rank == here.size - 1) spoil(*bus, step);
  Status status = bus->publish(step);
  if (status.ok()) status = bus->take(true).status();
  EXPECT_EQ(status.code(), Code::mismatch) << status.to_string();
  EXPECT_THAT(status.message(), HasSubstr("step " + std::to_string(step)));
  // And it stays so.
  EXPECT_EQ(bus->publish(6).code(), Code::mismatch);
  EXPECT_EQ(bus->take(true).status().code(), Code::mismatch);
}

TEST_P(Bus, another_name_on_one_rank_is_a_mismatch_on_every_rank) {
  in_world([](Context& here) {
    for (const bool asynchronous : {false, true}) {
      auto bus = make_bus(here, asynchronous);
      ASSERT_TRUE(bus);
      bus->add("loss_sum", 1);
      bus->add(here.rank == here.size - 1 && here.size > 1 ? "tokenz" : "tokens", 1);
      Status status = bus->publish(9);
      if (status.ok()) status = bus->take(true).status();
      if (here.size == 1) {
        EXPECT_TRUE(status.ok());
        continue;
      }
      EXPECT_EQ(status.code(), Code::mismatch) << status.to_string();
      EXPECT_THAT(status.message(), HasSubstr("step 9"));
      EXPECT_THAT(status.message(), HasSubstr("loss_sum, token"));
    }
  });
}

TEST_P(Bus, one_more_name_on_one_rank_is_a_mismatch_on_every_rank) {
  in_world([](Context& here) {
    expect_mismatch(here, false, [](MetricsBus& bus, std::int64_t&) { bus.add("extra", 1); });
    expect_mismatch(here, true, [](MetricsBus& bus, std::int64_t&) { bus.add("extra", 1); });
  });
}

TEST_P(Bus, many_more_names_on_one_rank_are_a_mismatch_on_every_rank) {
  in_world([](Context& here) {
    expect_mismatch(here, true, [](MetricsBus& bus, std::int64_t&) {
      for (int i = 0; i < 100; ++i) bus.add("extra " + std::to_string(i), 1);
    });
  });
}

TEST_P(Bus, another_step_on_one_rank_is_a_mismatch_on_every_rank) {
  in_world([](Context& here) {
    expect_mismatch(here, true, [](MetricsBus&, std::int64_t& step) { step = 50; });
  });
}

TEST_P(Bus, says_so_when_nobody_ever_takes) {
  in_world([](Context& here) {
    auto bus = make_bus(here, true);
    ASSERT_TRUE(bus);
    Status status;
    int step = 0;
    for (; step < 5000 && status.ok(); ++step) status = bus->publish(step);
    EXPECT_EQ(status.code(), Code::invalid_argument);
    EXPECT_EQ(step, 1025);
    EXPECT_THAT(status.message(), HasSubstr("call take()"));
  });
}

INSTANTIATE_TEST_SUITE_P(Worlds, Bus,
                         testing::Values(World{.kind = WorldKind::threads, .size = 1},
                                         World{.kind = WorldKind::threads, .size = 3},
                                         World{.kind = WorldKind::shm, .size = 4},
                                         World{.kind = WorldKind::tcp, .size = 3}),
                         name_of);

class BusOfTheDead : public WorldTest {};

TEST_P(BusOfTheDead, ends_in_an_error_that_names_the_rank) {
  in_world([](Context& here) {
    const int victim = here.world.doomed.front();
    auto bus = make_bus(here, true);
    ASSERT_TRUE(bus);
    bus->add("loss", 1);
    ASSERT_TRUE(bus->publish(1).ok());
    ASSERT_TRUE(bus->take(true).ok());
    meet(here);  // everybody has the first step
    if (here.rank == victim) (void)std::raise(SIGKILL);
    bus->add("loss", 1);
    Status status = bus->publish(2);
    if (status.ok()) status = bus->take(true).status();
    EXPECT_EQ(status.code(), Code::peer_lost) << status.to_string();
    EXPECT_THAT(status.message(), HasSubstr("step 2"));
    EXPECT_THAT(status.message(), HasSubstr("rank " + std::to_string(victim)));
  });
}

INSTANTIATE_TEST_SUITE_P(Worlds, BusOfTheDead,
                         testing::ValuesIn(each_victim_in({{.kind = WorldKind::shm, .size = 3},
                                                           {.kind = WorldKind::tcp, .size = 3}})),
                         name_of);

// Buckets large enough to fill every queue are under way; several steps of metrics come and go before
// the last is done. Were they to queue behind them, the first step would come after their end.
TEST_P(BusBesideABucket, comes_and_goes_before_the_buckets_are_done) {
  in_world([](Context& here) {
    auto bus = make_bus(here, true);
    ASSERT_TRUE(bus);
    const std::size_t share = (std::size_t{32} << 20) / sizeof(float);
    std::vector<float> bucket(share * static_cast<std::size_t>(here.size), 1.0F), shard(share);
    std::vector<Work> works;
    // So many that the last is under way for long: a single step of metrics may take as long as one
    // bucket on a busy machine.
    for (int i = 0; i < 8; ++i)
      works.push_back(here.group->reduce_scatter_async(ConstBuffer::of(bucket), Buffer::of(shard),
                                                       ReduceOp::sum));
    int before_the_end = 0;
    for (int step = 0; step < 5; ++step) {
      bus->add("loss", 1);
      ASSERT_TRUE(bus->publish(step).ok());
      auto sums = bus->take(true);
      ASSERT_TRUE(sums.ok() && *sums) << sums.status().to_string();
      before_the_end += works.back().done() ? 0 : 1;
    }
    EXPECT_GE(before_the_end, 2);
    for (Work& work : works) EXPECT_TRUE(work.wait().ok());
    EXPECT_EQ(shard.front(), static_cast<float>(here.size));
    EXPECT_EQ(shard.back(), static_cast<float>(here.size));
  });
}

INSTANTIATE_TEST_SUITE_P(Worlds, BusBesideABucket,
                         testing::Values(World{.kind = WorldKind::shm, .size = 2},
                                         World{.kind = WorldKind::tcp, .size = 2},
                                         World{.kind = WorldKind::tcp, .size = 4}),
                         name_of);

}  // namespace
}  // namespace tutti::test
