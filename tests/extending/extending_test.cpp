// What docs/extending.md promises: an algorithm and a transport from outside src/ are verified,
// costed and run like those inside.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>
#include <numeric>
#include <thread>
#include <vector>

#include "contract/transport_contract.hpp"
#include "extending/toys.hpp"
#include "group/extensions.hpp"
#include "schedule/catalog.hpp"
#include "schedule/verify.hpp"
#include "tuner/choose.hpp"
#include "tutti/group.hpp"

namespace tutti::test {
namespace {

using testing::HasSubstr;

constexpr auto kStar = Algorithm::custom;

schedule::Catalog with_star() { return schedule::Catalog::built_in().with(toys::star_rows()); }

// Ranks as threads, each with a group that knows the toys.
void in_threads(int size, const std::function<void(Config&)>& tune,
                const std::function<void(Group&)>& body) {
  auto toys = std::make_shared<Extensions>();
  toys->algorithms.assign(toys::star_rows().begin(), toys::star_rows().end());
  toys->transports = {&toys::unix_transport()};
  const auto store = make_memory_store();
  std::vector<std::thread> ranks;
  for (int rank = 0; rank < size; ++rank)
    ranks.emplace_back([&, rank] {
      GroupOptions options;
      options.rank = rank;
      options.size = size;
      options.extensions = toys;
      Config& config = options.config.emplace();
      config.timeout = std::chrono::seconds(20);
      config.tuning = "fixed";
      tune(config);
      auto group = Group::create(store, options);
      ASSERT_TRUE(group.ok()) << group.status().to_string();
      body(**group);
    });
  for (std::thread& rank : ranks) rank.join();
}

void check_all_reduce(Group& group, std::size_t count, Algorithm algorithm) {
  std::vector<float> values(count);
  std::iota(values.begin(), values.end(), static_cast<float>(group.rank()));
  CallOptions options;
  options.algorithm = algorithm;
  const Status status = group.all_reduce(Buffer::of(values), ReduceOp::sum, options);
  ASSERT_TRUE(status.ok()) << status.to_string();
  const int n = group.size();
  for (std::size_t i = 0; i < count; ++i)
    ASSERT_EQ(values[i],
              static_cast<float>(n) * static_cast<float>(i) + static_cast<float>(n * (n - 1) / 2))
        << i << " of " << count;
}

// ---- the algorithm

TEST(ToyAlgorithm, is_proved_for_every_number_of_ranks) {
  const schedule::Catalog catalog = with_star();
  for (int n = 1; n <= 64; ++n)
    for (const bool in_place : {false, true}) {
      const auto programs = catalog.build_all(
          kStar, {.collective = Collective::all_reduce, .size = n, .in_place = in_place});
      ASSERT_TRUE(programs.ok());
      const auto report = schedule::verify(*programs);
      ASSERT_TRUE(report.ok()) << n << ": " << report.status().to_string();
      EXPECT_TRUE(report->rank_ordered) << n;  // as its row claims
    }
}

TEST(ToyAlgorithm, is_weighed_against_the_others) {
  const schedule::Catalog catalog = with_star();
  const std::vector<int> host_of{0, 1, 2, 3};
  tuner::CallFacts facts;
  facts.bytes = 1 << 20;
  facts.ranks = 4;
  facts.host_of = host_of;
  EXPECT_FALSE(tuner::choose_forced(facts, kStar).ok());  // the built-in catalog has none
  facts.catalog = &catalog;
  const auto star = tuner::choose_forced(facts, kStar);
  const auto ring = tuner::choose_forced(facts, Algorithm::ring);
  ASSERT_TRUE(star.ok()) << star.status().to_string();
  EXPECT_GT(star->predicted, ring->predicted);  // all of it goes in and out of rank 0
  const auto rows = tuner::candidates(facts);
  EXPECT_TRUE(std::any_of(rows.begin(), rows.end(),
                          [](const tuner::Choice& row) { return row.algorithm == kStar; }));
}

TEST(ToyAlgorithm, runs_in_a_group_that_was_told_of_it) {
  in_threads(
      4, [](Config&) {},
      [](Group& group) {
        for (const std::size_t count : {0ul, 1ul, 1000ul, 300'001ul})
          check_all_reduce(group, count, kStar);
        auto half = group.split(group.rank() % 2, 0);
        ASSERT_TRUE(half.ok());
        check_all_reduce(**half, 1000, kStar);
        std::vector<float> values(4);
        CallOptions options;
        options.algorithm = kStar;
        const Status none = group.broadcast(Buffer::of(values), 0, options);
        EXPECT_EQ(none.code(), Code::invalid_argument);
        EXPECT_THAT(none.message(), HasSubstr("custom"));
      });
}

TEST(ToyAlgorithm, can_be_forced_and_predicted_like_any_other) {
  const auto force = [](Config& config) {
    config.algorithm[static_cast<std::size_t>(Collective::all_reduce)] = kStar;
  };
  in_threads(3, force, [](Group& group) {
    check_all_reduce(group, 1000, Algorithm::automatic);
    const auto prediction = group.predict(Collective::all_reduce, 4000);
    ASSERT_TRUE(prediction.ok());
    EXPECT_EQ(prediction->algorithm, kStar);
    EXPECT_GT(prediction->time.count(), 0);
  });
}

// ---- the transport

INSTANTIATE_TEST_SUITE_P(Toy, TransportContract,
                         testing::Values(forced("unix", {&toys::unix_transport()})), name_of_kind);
INSTANTIATE_TEST_SUITE_P(Toy, SleepingContract,
                         testing::Values(forced("unix", {&toys::unix_transport()})), name_of_kind);

TEST(ToyTransport, carries_collectives) {
  const auto only_unix = [](Config& config) { config.transport = "unix"; };
  in_threads(4, only_unix, [](Group& group) {
    EXPECT_THAT(group.describe(), HasSubstr("3 unix"));
    for (const std::size_t count : {0ul, 1ul, 1000ul, 300'001ul})
      for (const Algorithm algorithm : {Algorithm::automatic, Algorithm::ring, kStar})
        check_all_reduce(group, count, algorithm);
  });
}

TEST(ToyTransport, comes_before_the_built_in_ones) {
  in_threads(
      2, [](Config&) {},
      [](Group& group) {
        EXPECT_THAT(group.describe(), HasSubstr("1 unix"));
        check_all_reduce(group, 1000, Algorithm::automatic);
      });
}

TEST(ToyTransport, is_named_with_the_others_when_a_word_is_wrong) {
  auto toys = std::make_shared<Extensions>();
  toys->transports = {&toys::unix_transport()};
  GroupOptions options;
  options.rank = 0;
  options.size = 1;
  options.extensions = toys;
  options.config.emplace().transport = "smoke";
  const auto group = Group::create(make_memory_store(), options);
  EXPECT_THAT(group.status().message(), HasSubstr("unix, inproc, shm, ofi, tcp"));
}

}  // namespace
}  // namespace tutti::test
