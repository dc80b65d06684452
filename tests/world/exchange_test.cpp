// Exchanges beside compute: what callbacks see and what comes out, against plain loops; their failures.
#include "tutti/exchange.hpp"

#include <signal.h>
#include <unistd.h>

#include <atomic>
#include <cmath>
#include <numeric>

#include "support/worlds.hpp"

namespace tutti::test {
namespace {

using exchange::ExchangeTimes;
using exchange::IndexRun;
using exchange::RingArray;
using exchange::RingExchange;
using exchange::RingOptions;
using exchange::RingVisit;
using exchange::RowPiece;

class Exchange : public WorldTest {};

constexpr std::size_t kRow = 3;

// Rows of each rank; some differ, one may be empty.
std::vector<std::size_t> uneven_counts(int size) {
  std::vector<std::size_t> counts;
  for (int rank = 0; rank < size; ++rank) counts.push_back(static_cast<std::size_t>(rank % 3) * 5);
  return counts;
}

std::size_t total(const std::vector<std::size_t>& counts) {
  return std::accumulate(counts.begin(), counts.end(), std::size_t{0});
}

double value_of(int rank, std::size_t index) {
  return 100.0 * (rank + 1) + static_cast<double>(index % 97);
}

std::vector<double> rows_of(int rank, std::size_t rows) {
  std::vector<double> values(rows * kRow);
  for (std::size_t i = 0; i < values.size(); ++i) values[i] = value_of(rank, i);
  return values;
}

void expect_sensible(const Result<ExchangeTimes>& times) {
  ASSERT_TRUE(times.ok()) << times.status().to_string();
  EXPECT_GE(times->total_s, times->wait_s);
  EXPECT_GE(times->hidden(), 0);
  EXPECT_LE(times->hidden(), 1);
}

void gather_and_check(Group& group, const std::vector<std::size_t>& counts, int pieces) {
  const auto mine = rows_of(group.rank(), counts[static_cast<std::size_t>(group.rank())]);
  std::vector<double> wanted;
  for (int rank = 0; rank < group.size(); ++rank) {
    const auto rows = rows_of(rank, counts[static_cast<std::size_t>(rank)]);
    wanted.insert(wanted.end(), rows.begin(), rows.end());
  }
  std::vector<double> whole(wanted.size(), -1), seen(wanted.size(), -1);
  int next = 0;
  const auto times =
      exchange::gather_in_pieces(group, {counts, kRow}, ConstBuffer::of(mine), Buffer::of(whole),
                                 pieces, [&](const RowPiece& piece) {
                                   EXPECT_EQ(piece.index, next++);
                                   for (const IndexRun& range : piece.ranges)
                                     for (auto i = static_cast<std::size_t>(range.first) * kRow;
                                          i < static_cast<std::size_t>(range.end()) * kRow; ++i)
                                       seen[i] = whole[i];
                                   return Status();
                                 });
  expect_sensible(times);
  EXPECT_EQ(next, pieces);
  EXPECT_EQ(whole, wanted);
  EXPECT_EQ(seen, wanted) << "pieces cover the whole, and each is there when it is told of";
}

TEST_P(Exchange, gathers_in_pieces_what_all_gather_gives) {
  in_world([](Context& here) {
    for (const int pieces : {1, 2, 3, 7}) {
      gather_and_check(*here.group, uneven_counts(here.size), pieces);
      gather_and_check(*here.group,
                       std::vector<std::size_t>(static_cast<std::size_t>(here.size), 8), pieces);
    }
  });
}

TEST_P(Exchange, scatters_in_pieces_what_reduce_scatter_gives) {
  in_world([](Context& here) {
    const auto counts = uneven_counts(here.size);
    for (const int pieces : {1, 2, 5}) {
      std::vector<float> whole(total(counts) * kRow, NAN);
      std::vector<float> mine(counts[static_cast<std::size_t>(here.rank)] * kRow, -1);
      const auto times = exchange::scatter_in_pieces(
          *here.group, {counts, kRow}, Buffer::of(whole), Buffer::of(mine), ReduceOp::sum, pieces,
          [&](const RowPiece& piece) {
            for (const IndexRun& range : piece.ranges)
              for (auto i = static_cast<std::size_t>(range.first) * kRow;
                   i < static_cast<std::size_t>(range.end()) * kRow; ++i)
                whole[i] = static_cast<float>(here.rank + 1) * static_cast<float>(i);
            return Status();
          });
      expect_sensible(times);
      const std::size_t before =
          std::accumulate(counts.begin(), counts.begin() + here.rank, std::size_t{0}) * kRow;
      const auto all = static_cast<float>(here.size * (here.size + 1) / 2);
      for (std::size_t i = 0; i < mine.size(); ++i)
        ASSERT_EQ(mine[i], all * static_cast<float>(before + i)) << i;
    }
  });
}

// Windows that divide the group, and 0.
std::vector<int> windows_of(int size) {
  std::vector<int> windows = {0};
  for (int window = 1; window <= size; ++window)
    if (size % window == 0) windows.push_back(window);
  return windows;
}

TEST_P(Exchange, every_block_visits_every_rank) {
  in_world([](Context& here) {
    const auto counts = uneven_counts(here.size);
    for (const int window : windows_of(here.size)) {
      auto ring = RingExchange::create(here.group, {.window = window});
      ASSERT_TRUE(ring.ok()) << ring.status().to_string();
      for (int again = 0; again < 2; ++again) {
        auto keys = rows_of(here.rank, counts[static_cast<std::size_t>(here.rank)]);
        std::vector<std::int8_t> marks(counts[static_cast<std::size_t>(here.rank)],
                                       static_cast<std::int8_t>(here.rank));
        const RingArray block[] = {{keys.data(), kRow, Dtype::f64}, {marks.data(), 1, Dtype::i8}};
        std::vector<int> met(static_cast<std::size_t>(here.size), 0);
        const auto times = (*ring)->pass(counts, block, [&](const RingVisit& visit) {
          const std::size_t rows = counts[static_cast<std::size_t>(visit.source)];
          ++met[static_cast<std::size_t>(visit.source)];
          EXPECT_TRUE(visit.gradient.empty());
          EXPECT_EQ(visit.block[0].count, rows * kRow);
          EXPECT_EQ(visit.block[1].count, rows);
          const auto* values = static_cast<const double*>(visit.block[0].data);
          EXPECT_EQ(std::vector<double>(values, values + rows * kRow), rows_of(visit.source, rows));
          const auto* own = static_cast<const std::int8_t*>(visit.block[1].data);
          for (std::size_t i = 0; i < rows; ++i) EXPECT_EQ(own[i], visit.source);
          return Status();
        });
        expect_sensible(times);
        EXPECT_EQ(met, std::vector<int>(static_cast<std::size_t>(here.size), 1));
      }
    }
  });
}

// What a visit of `rank` to `source`'s block adds to its gradient.
double part_of_visit(int rank, int source, std::size_t index) {
  return (rank + 1) * 1000.0 + source * 10.0 + static_cast<double>(index % 7);
}

TEST_P(Exchange, gradients_end_with_their_owner_and_hold_every_visit) {
  in_world([](Context& here) {
    for (const auto& counts :
         {uneven_counts(here.size),
          std::vector<std::size_t>(static_cast<std::size_t>(here.size), 20'011)}) {
      const std::size_t own = counts[static_cast<std::size_t>(here.rank)];
      for (const int window : windows_of(here.size)) {
        auto ring = RingExchange::create(here.group, {.window = window});
        ASSERT_TRUE(ring.ok());
        std::vector<float> keys(own * kRow, static_cast<float>(here.rank));
        std::vector<double> sums(own * 2, -1);  // another type and width than the block
        const RingArray block[] = {{keys.data(), kRow, Dtype::f32}};
        const RingArray gradients[] = {{sums.data(), 2, Dtype::f64}};
        const auto times =
            (*ring)->pass_back(counts, block, gradients, [&](const RingVisit& visit) {
              auto* part = static_cast<double*>(visit.gradient[0].data);
              for (std::size_t i = 0; i < visit.gradient[0].count; ++i)
                part[i] = part_of_visit(here.rank, visit.source, i);
              const auto* values = static_cast<const float*>(visit.block[0].data);
              for (std::size_t i = 0; i < visit.block[0].count; ++i)
                EXPECT_EQ(values[i], static_cast<float>(visit.source));
              return Status();
            });
        expect_sensible(times);
        for (std::size_t i = 0; i < sums.size(); ++i) {
          double wanted = 0;
          for (int rank = 0; rank < here.size; ++rank) wanted += part_of_visit(rank, here.rank, i);
          ASSERT_EQ(sums[i], wanted) << "window " << window << ", element " << i;
        }
      }
    }
  });
}

// All ranks have to cut alike.
TEST_P(Exchange, plan_is_the_same_on_every_rank) {
  in_world([](Context& here) {
    const auto plan = exchange::plan_pieces(*here.group, Collective::all_gather, 1 << 24, 0.01);
    ASSERT_TRUE(plan.ok()) << plan.status().to_string();
    EXPECT_GE(plan->saved_s(), 0);
    std::vector<std::int32_t> pieces = {plan->pieces, -plan->pieces};
    ASSERT_TRUE(here.group->all_reduce(Buffer::of(pieces), ReduceOp::max).ok());
    EXPECT_EQ(pieces, (std::vector<std::int32_t>{plan->pieces, -plan->pieces}));
  });
}

TEST_P(Exchange, wrong_sizes_are_refused_on_the_spot) {
  in_world([](Context& here) {
    std::vector<double> one(1), two(2);
    const std::vector<std::size_t> counts(static_cast<std::size_t>(here.size) + 1, 1);
    const auto nothing = [](const auto&) { return Status(); };
    EXPECT_EQ(exchange::gather_in_pieces(*here.group, {counts, 1}, ConstBuffer::of(one),
                                         Buffer::of(two), 1, nothing)
                  .status()
                  .code(),
              Code::invalid_argument);
    EXPECT_EQ(exchange::gather_in_pieces(*here.group, {counts, 1}, ConstBuffer::of(one),
                                         Buffer::of(two), 0, nothing)
                  .status()
                  .code(),
              Code::invalid_argument);
    auto ring = RingExchange::create(here.group, {.window = here.size + 1});
    EXPECT_NE(ring.status().message().find("windows of " + std::to_string(here.size + 1)),
              std::string::npos);
    ring = RingExchange::create(here.group);
    const RingArray block[] = {{one.data(), 1, Dtype::f64}};
    EXPECT_EQ((*ring)->pass(counts, block, nothing).status().code(), Code::invalid_argument);
    EXPECT_TRUE(here.group->barrier().ok());  // nothing was started
  });
}

TEST_P(Exchange, callback_that_fails_ends_the_exchange_on_every_rank) {
  in_world([](Context& here) {
    const int culprit = here.size - 1;
    auto ring = RingExchange::create(here.group);
    ASSERT_TRUE(ring.ok());
    const std::vector<std::size_t> counts(static_cast<std::size_t>(here.size), 50'000);
    std::vector<double> keys(50'000), sums(50'000);
    const RingArray block[] = {{keys.data(), 1, Dtype::f64}};
    const RingArray gradients[] = {{sums.data(), 1, Dtype::f64}};
    const auto times = (*ring)->pass_back(counts, block, gradients, [&](const RingVisit&) {
      return here.rank == culprit ? Status(Code::invalid_argument, "no such attention") : Status();
    });
    ASSERT_FALSE(times.ok());
    EXPECT_EQ(times.status().code(), here.rank == culprit ? Code::invalid_argument : Code::aborted);
    EXPECT_NE(times.status().message().find("no such attention"), std::string::npos)
        << times.status().to_string();
  });
}

INSTANTIATE_TEST_SUITE_P(World, Exchange, testing::ValuesIn([] {
                           auto worlds = one_world_of_each();
                           worlds.push_back({.kind = WorldKind::threads, .size = 1});
                           worlds.push_back({.kind = WorldKind::threads, .size = 6});
                           return worlds;
                         }()),
                         name_of);

TEST(ExchangeLoss, of_a_rank_is_told_with_whose_block_was_awaited) {
  run({.kind = WorldKind::shm, .size = 3, .doomed = {2}}, [](Context& here) {
    auto ring = RingExchange::create(here.group);
    ASSERT_TRUE(ring.ok());
    const std::vector<std::size_t> counts(3, 50'000);
    std::vector<double> keys(50'000);
    const RingArray block[] = {{keys.data(), 1, Dtype::f64}};
    const auto times = (*ring)->pass(counts, block, [&](const RingVisit& visit) {
      if (here.rank == 2 && visit.number == 1) kill(getpid(), SIGKILL);
      return Status();
    });
    ASSERT_FALSE(times.ok());
    EXPECT_EQ(times.status().code(), Code::peer_lost) << times.status().to_string();
    EXPECT_EQ(times.status().peer(), 2);
    EXPECT_NE(times.status().message().find("ring exchange"), std::string::npos);
  });
}

}  // namespace
}  // namespace tutti::test
