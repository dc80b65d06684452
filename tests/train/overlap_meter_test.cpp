// Step times exchanged beside the training, and clocks compared.
#include <gmock/gmock.h>

#include <csignal>

#include "support/worlds.hpp"
#include "train/clock_offsets.hpp"
#include "tutti/train/overlap.hpp"

namespace tutti::test {
namespace {

using testing::HasSubstr;
using train::CollectiveTimes;
using train::OverlapMeter;
using train::StepTimes;

class Meter : public WorldTest {};

std::unique_ptr<OverlapMeter> make_meter(Context& here) {
  auto meter = OverlapMeter::create(*here.group);
  EXPECT_TRUE(meter.ok()) << meter.status().to_string();
  return meter.ok() ? std::move(*meter) : nullptr;
}

// Rank r joins the only bucket r ms after rank 0, all wait until 100 ms; every value is different.
StepTimes times_of(int rank, int step) {
  constexpr std::int64_t kMs = 1'000'000;
  StepTimes times;
  times.begin = 1;
  times.end = 200 * kMs + 1;
  times.forward = (10 + step) * kMs;
  times.first_forward = 9 * kMs;
  times.backward = (20 + rank) * kMs;
  times.last_backward = 8 * kMs;
  times.update = 3 * kMs;
  CollectiveTimes call;
  call.collective = Collective::reduce_scatter;
  call.bucket = 0;
  call.bytes = 4096;
  call.joined = call.wait_begin = (50 + rank) * kMs;
  call.done = call.wait_end = 100 * kMs;
  times.collectives = {call};
  return times;
}

TEST_P(Meter, gives_every_rank_what_everybodys_times_make) {
  in_world([](Context& here) {
    auto meter = make_meter(here);
    ASSERT_TRUE(meter);
    for (int step = 0; step < 6; ++step) {
      const Status status = meter->publish(step, times_of(here.rank, step));
      ASSERT_TRUE(status.ok()) << status.to_string();
      if (step % 2 == 0) continue;  // two under way
      for (int back = 1; back >= 0; --back) {
        auto overlap = meter->take(true);
        ASSERT_TRUE(overlap.ok() && *overlap) << overlap.status().to_string();
        EXPECT_EQ((*overlap)->step, step - back);
        ASSERT_EQ((*overlap)->ranks.size(), 1u);
        const auto& own = (*overlap)->ranks.front();
        EXPECT_NEAR(own.step_s, 0.2, 1e-12);
        EXPECT_NEAR(own.forward_s, 0.010 + 0.001 * (step - back), 1e-12);
        EXPECT_NEAR(own.backward_s, 0.020 + 0.001 * here.rank, 1e-12);
        EXPECT_NEAR(own.update_s, 0.003, 1e-12);
        EXPECT_NEAR(own.wait_s, 0.050 - 0.001 * here.rank, 1e-12);
        EXPECT_NEAR(own.skew_s, 0.001 * (here.size - 1 - here.rank), 1e-12);
        EXPECT_NEAR(own.wire_s, 0.050 - 0.001 * (here.size - 1), 1e-12);
        // As one would make of everybody's times.
        std::vector<StepTimes> all;
        for (int rank = 0; rank < here.size; ++rank) all.push_back(times_of(rank, step - back));
        const auto exact =
            train::compare_times(step - back, all, std::vector<std::int64_t>(all.size()));
        ASSERT_TRUE(exact.ok());
        for (const auto field : {&train::RankOverlap::step_s, &train::RankOverlap::forward_s,
                                 &train::RankOverlap::backward_s, &train::RankOverlap::wait_s,
                                 &train::RankOverlap::skew_s, &train::RankOverlap::exposed_s,
                                 &train::RankOverlap::wire_s, &train::RankOverlap::hidden,
                                 &train::RankOverlap::bound_s}) {
          EXPECT_NEAR((*overlap)->max.*field, exact->max.*field, 1e-12);
          EXPECT_NEAR((*overlap)->mean.*field, exact->mean.*field, 1e-12);
        }
      }
    }
    auto none = meter->take(true);
    ASSERT_TRUE(none.ok());
    EXPECT_FALSE(none->has_value());
  });
}

void expect_mismatch(Context& here, const std::string& where,
                     const std::function<void(StepTimes&, std::int64_t&)>& spoil) {
  auto meter = make_meter(here);
  ASSERT_TRUE(meter);
  meet(here, where);  // a failure ends whatever is under way
  std::int64_t step = 3;
  StepTimes times = times_of(here.rank, 3);
  if (here.rank == here.size - 1) spoil(times, step);
  ASSERT_TRUE(meter->publish(step, times).ok());
  auto overlap = meter->take(true);
  ASSERT_FALSE(overlap.ok());
  EXPECT_EQ(overlap.status().code(), Code::mismatch) << overlap.status().to_string();
  EXPECT_THAT(overlap.status().message(), HasSubstr("step " + std::to_string(step)));
  EXPECT_EQ(meter->publish(4, times).code(), Code::mismatch);
}

TEST_P(Meter, one_more_collective_on_one_rank_is_a_mismatch_on_every_rank) {
  in_world([](Context& here) {
    expect_mismatch(here, "more", [](StepTimes& times, std::int64_t&) {
      times.collectives.push_back(times.collectives.front());
    });
  });
}

TEST_P(Meter, another_collective_or_step_on_one_rank_is_a_mismatch_on_every_rank) {
  in_world([](Context& here) {
    expect_mismatch(here, "another", [](StepTimes& times, std::int64_t&) {
      times.collectives.front().collective = Collective::all_gather;
    });
    expect_mismatch(here, "step", [](StepTimes&, std::int64_t& step) { step = 30; });
  });
}

TEST_P(Meter, says_so_when_nobody_ever_takes) {
  in_world([](Context& here) {
    auto meter = make_meter(here);
    ASSERT_TRUE(meter);
    Status status;
    int step = 0;
    for (; step < 1000 && status.ok(); ++step)
      status = meter->publish(step, times_of(here.rank, 0));
    EXPECT_EQ(status.code(), Code::invalid_argument);
    EXPECT_THAT(status.message(), HasSubstr("call take()"));
  });
}

// As where Python collects a model later on one rank than on another: the rank that waits meets the others only when its
// meter is gone, and theirs are taken from after that.
TEST_P(Meter, of_one_rank_ends_while_others_neither_take_nor_end_theirs) {
  in_world([](Context& here) {
    auto meter = make_meter(here);
    ASSERT_TRUE(meter);
    for (int step = 0; step < 3; ++step)
      ASSERT_TRUE(meter->publish(step, times_of(here.rank, step)).ok());
    if (here.rank == 0) {
      ASSERT_TRUE(meter->take(false).ok());
      meter.reset();
    }
    meet(here, "rank 0 has ended its meter");
    if (here.rank == 0) return;
    for (int step = 0; step < 3; ++step) {
      auto overlap = meter->take(true);
      ASSERT_TRUE(overlap.ok() && *overlap) << overlap.status().to_string();
      EXPECT_NEAR((*overlap)->mean.step_s, 0.2, 1e-12);
    }
  });
}

// A rank that fails between two calls publishes no more.
TEST_P(Meter, ends_soon_where_another_rank_never_publishes) {
  in_world([](Context& here) {
    auto meter = make_meter(here);
    ASSERT_TRUE(meter);
    meet(here);
    if (here.rank != here.size - 1) {
      EXPECT_TRUE(meter->publish(1, times_of(here.rank, 1)).ok());
      meter.reset();
    }
    meet(here, "the others have ended theirs");
    if (here.rank != here.size - 1) return;
    Status status = meter->publish(1, times_of(here.rank, 1));
    if (status.ok()) status = meter->take(true).status();
    EXPECT_EQ(status.code(), Code::aborted) << status.to_string();
  });
}

// Clocks that run apart: rank r's is r hours ahead of rank 0's. It knows when it was read.
class ShiftedClock final : public Clock {
 public:
  explicit ShiftedClock(Nanoseconds shift) : shift_(shift) {}
  Nanoseconds now() const override {
    readings_.push_back(steady_clock().now() + shift_);
    return readings_.back();
  }
  // Rank 0 reads it before and after each round, and has as many rounds with every peer.
  std::int64_t shortest_round_with(int peer, int peers) const {
    const std::size_t rounds = readings_.size() / 2 / static_cast<std::size_t>(peers);
    const std::size_t first = rounds * static_cast<std::size_t>(peer - 1);
    Nanoseconds shortest = Nanoseconds::max();
    for (std::size_t round = first; round < first + rounds; ++round)
      shortest = std::min(shortest, readings_[2 * round + 1] - readings_[2 * round]);
    return shortest.count();
  }

 private:
  Nanoseconds shift_;
  mutable std::vector<Nanoseconds> readings_;
};

// The peer looked at its clock somewhere in the round, so that the middle is wrong by half of it at
// most, however busy the machine is.
TEST_P(Meter, finds_the_offsets_of_other_hosts_clocks_to_half_of_the_shortest_round) {
  in_world([](Context& here) {
    const auto ahead = [](int rank) { return rank * Nanoseconds(std::chrono::hours(1)).count(); };
    const ShiftedClock clock{Nanoseconds(ahead(here.rank))};
    auto offsets = train::measure_offsets(*here.group, "host " + std::to_string(here.rank), clock);
    ASSERT_TRUE(offsets.ok()) << offsets.status().to_string();
    ASSERT_EQ(offsets->size(), static_cast<std::size_t>(here.size));
    EXPECT_EQ((*offsets)[0], 0);
    for (int rank = 1; here.rank == 0 && rank < here.size; ++rank) {
      const std::int64_t wrong_by = (*offsets)[static_cast<std::size_t>(rank)] + ahead(rank);
      EXPECT_LE(std::abs(wrong_by), clock.shortest_round_with(rank, here.size - 1) / 2 + 1);
    }
    std::vector<std::int64_t> of_rank_0 = *offsets;
    ASSERT_TRUE(here.group->broadcast(Buffer::of(of_rank_0), 0).ok());
    EXPECT_EQ(*offsets, of_rank_0);
  });
}

TEST_P(Meter, clocks_of_one_kernel_are_one_clock) {
  in_world([](Context& here) {
    EXPECT_FALSE(clock_identity().empty());
    const ShiftedClock clock{std::chrono::hours(here.rank)};  // never read
    auto offsets = train::measure_offsets(*here.group, clock_identity(), clock);
    ASSERT_TRUE(offsets.ok()) << offsets.status().to_string();
    EXPECT_THAT(*offsets, testing::Each(0));
  });
}

INSTANTIATE_TEST_SUITE_P(Worlds, Meter,
                         testing::Values(World{.kind = WorldKind::threads, .size = 3},
                                         World{.kind = WorldKind::shm, .size = 4},
                                         World{.kind = WorldKind::tcp, .size = 3}),
                         name_of);

class MeterOfTheDead : public WorldTest {};

TEST_P(MeterOfTheDead, ends_in_an_error_that_names_the_rank) {
  in_world([](Context& here) {
    const int victim = here.world.doomed.front();
    auto meter = make_meter(here);
    ASSERT_TRUE(meter);
    meet(here);  // nobody is still making its meter
    if (here.rank == victim) (void)std::raise(SIGKILL);
    Status status = meter->publish(2, times_of(here.rank, 2));
    if (status.ok()) status = meter->take(true).status();
    EXPECT_EQ(status.code(), Code::peer_lost) << status.to_string();
    EXPECT_THAT(status.message(), HasSubstr("rank " + std::to_string(victim)));
  });
}

INSTANTIATE_TEST_SUITE_P(Worlds, MeterOfTheDead,
                         testing::ValuesIn(each_victim_in({{.kind = WorldKind::tcp, .size = 3}})),
                         name_of);

}  // namespace
}  // namespace tutti::test
