#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "bench/protocol.hpp"
#include "tool/bench/arithmetic.hpp"
#include "tool/bench/device_bench.hpp"
#include "tool/bench/floor.hpp"
#include "tool/bench/progress.hpp"

namespace tutti::tool {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

TEST(BenchArithmetic, bandwidth_is_bytes_over_time_in_powers_of_ten) {
  EXPECT_DOUBLE_EQ(algbw_gbs(1'000'000, 1000), 1.0);
  EXPECT_DOUBLE_EQ(algbw_gbs(5, 0), 0);
}

TEST(BenchArithmetic, medians_and_quantiles_of_few_values) {
  EXPECT_DOUBLE_EQ(bench::median_of({3, 1, 2}), 2);
  EXPECT_DOUBLE_EQ(bench::median_of({4, 1, 2, 3}), 2.5);
  EXPECT_DOUBLE_EQ(bench::median_of({}), 0);
  std::vector<double> hundred;
  for (int i = 100; i >= 1; --i) hundred.push_back(i);
  EXPECT_DOUBLE_EQ(bench::quantile_of(hundred, 0.99), 99);
  EXPECT_DOUBLE_EQ(bench::quantile_of({7}, 0.99), 7);
  EXPECT_DOUBLE_EQ(bench::quantile_of({1, 2}, 0.99), 2);
}

TEST(BenchArithmetic, iterations_follow_the_budget_within_bounds) {
  const bench::Effort effort{.budget_us = 10e3, .iterations = 0};
  EXPECT_EQ(bench::iterations_for(effort, 100), 100);
  EXPECT_EQ(bench::iterations_for(effort, 0.001), bench::Meeting::kMostIterations);
  EXPECT_EQ(bench::iterations_for(effort, 20e3), 5);
  EXPECT_EQ(bench::iterations_for(effort, 1e6), 2);
  EXPECT_EQ(bench::iterations_for({.budget_us = 10e3, .brief = true}, 20e3), 3);
  EXPECT_EQ(bench::iterations_for({.budget_us = 1, .iterations = 17}, 1e6), 17);
}

TEST(BenchArithmetic, sizes_are_walked_by_a_factor) {
  EXPECT_THAT(*walk_sizes(4, 300, 4), ElementsAre(4, 16, 64, 256));
  EXPECT_THAT(*walk_sizes(8, 8, 0), ElementsAre(8));
  EXPECT_THAT(*walk_sizes(1, 3, 1.2), ElementsAre(1, 2, 3));
  EXPECT_EQ(walk_sizes(4, 64, 2.0)->back(), 64U);
  EXPECT_THAT(walk_sizes(64, 4, 2).status().message(), HasSubstr("-b 64 B is more than -e 4 B"));
  EXPECT_THAT(walk_sizes(4, 64, 1).status().message(), HasSubstr("-f 1"));
  EXPECT_THAT(walk_sizes(0, 64, 2).status().message(), HasSubstr("-b 0"));
}

TEST(BenchArithmetic, arrays_that_are_cut_fit_the_ranks) {
  EXPECT_EQ(fitting_bytes(Collective::all_reduce, 4, Dtype::f32, 3), 4U);
  EXPECT_EQ(fitting_bytes(Collective::all_gather, 4, Dtype::f32, 3), 12U);
  EXPECT_EQ(fitting_bytes(Collective::all_gather, 1024, Dtype::f32, 3), 1020U);
  EXPECT_EQ(fitting_bytes(Collective::all_reduce, 5, Dtype::f64, 3), 8U);
  EXPECT_EQ(fitting_bytes(Collective::barrier, 64, Dtype::f32, 3), 0U);
}

TEST(BenchArithmetic, geometric_mean_leaves_out_what_is_missing) {
  const std::vector<double> values = {2, 8, 0};
  EXPECT_DOUBLE_EQ(geometric_mean(values), 4);
  EXPECT_DOUBLE_EQ(geometric_mean({}), 0);
}

TEST(BenchArithmetic, sizes_in_words) {
  EXPECT_EQ(size_words(4), "4 B");
  EXPECT_EQ(size_words(65536), "64 KiB");
  EXPECT_EQ(size_words(64 << 20), "64 MiB");
  EXPECT_EQ(size_words(1500), "1500 B");
}

TEST(BenchFloor, work_is_an_even_share_of_what_the_result_needs) {
  const auto same = [](FloorWork work, int sources, int targets, std::size_t bytes) {
    return work.sources == sources && work.targets == targets && work.bytes == bytes;
  };
  EXPECT_TRUE(same(floor_work(Collective::all_reduce, 800, true, 4), 4, 4, 200));
  EXPECT_TRUE(same(floor_work(Collective::reduce_scatter, 800, false, 4), 4, 1, 200));
  EXPECT_TRUE(same(floor_work(Collective::all_gather, 800, false, 4), 1, 1, 800));
  EXPECT_TRUE(same(floor_work(Collective::all_gather, 800, true, 4), 1, 1, 600));
  EXPECT_TRUE(same(floor_work(Collective::broadcast, 800, true, 4), 1, 1, 600));
  EXPECT_TRUE(same(floor_work(Collective::gather, 800, false, 4), 1, 1, 200));
  EXPECT_EQ(floor_work(Collective::barrier, 0, false, 4).bytes, 0U);
  EXPECT_DOUBLE_EQ(least_bytes_sent(Collective::all_reduce, 800, 4), 1200);
  EXPECT_DOUBLE_EQ(least_bytes_sent(Collective::all_reduce, 800, 1), 0);
}

TEST(BenchFloor, on_a_device_is_what_is_read_and_written_at_least) {
  const auto traffic = [](Collective collective, bool in_place) {
    return least_device_traffic(collective, 800, in_place, 4);
  };
  EXPECT_DOUBLE_EQ(traffic(Collective::all_reduce, true), 2 * 800 * 4);
  EXPECT_DOUBLE_EQ(traffic(Collective::all_reduce, false), 2 * 800 * 4);
  EXPECT_DOUBLE_EQ(traffic(Collective::reduce_scatter, false), 4 * 800 + 800);
  EXPECT_DOUBLE_EQ(traffic(Collective::reduce, false), 4 * 800 + 800);
  EXPECT_DOUBLE_EQ(traffic(Collective::all_gather, false), 800 + 4 * 800);
  EXPECT_DOUBLE_EQ(traffic(Collective::all_gather, true), 4 * 800);
  EXPECT_DOUBLE_EQ(traffic(Collective::all_to_all, false), 2 * 4 * 800);
  EXPECT_DOUBLE_EQ(traffic(Collective::broadcast, true), 4 * 800);
  EXPECT_DOUBLE_EQ(traffic(Collective::gather, false), 2 * 800);
  EXPECT_DOUBLE_EQ(traffic(Collective::scan, false), 2 * 4 * 800);
  EXPECT_DOUBLE_EQ(traffic(Collective::barrier, false), 0);
  BenchCell cell;
  cell.bytes = 1'000'000;
  EXPECT_DOUBLE_EQ(*Floor::of(cell, 4, 4000.0), 2);  // 8 MB at 4 TB/s, in µs
  EXPECT_FALSE(Floor::of(cell, 4, std::nullopt));
}

TEST(BenchFloor, fold_and_put_adds_all_arrays_for_any_number_of_them) {
  for (const int k : {2, 3, 4, 5, 8, 16}) {
    constexpr std::size_t kCount = 2053;  // odd, more than a block
    std::vector<std::vector<float>> arrays(static_cast<std::size_t>(k), std::vector<float>(kCount));
    std::vector<float*> pointers;
    for (std::size_t a = 0; a < arrays.size(); ++a) {
      for (std::size_t i = 0; i < kCount; ++i) arrays[a][i] = static_cast<float>(a + i % 7);
      pointers.push_back(arrays[a].data());
    }
    const auto right = [&](std::size_t i) {
      return static_cast<float>(k * (k - 1) / 2 + k * static_cast<int>(i % 7));
    };
    std::vector<float> result(kCount);
    float* target = result.data();
    fold_and_put(pointers.data(), k, &target, 1, kCount);
    for (std::size_t i = 0; i < kCount; ++i) ASSERT_EQ(result[i], right(i)) << k << " " << i;
    fold_and_put(pointers.data(), k, pointers.data(), k, kCount);
    for (const auto& array : arrays)
      for (std::size_t i = 0; i < kCount; ++i) ASSERT_EQ(array[i], right(i)) << k << " " << i;
  }
}

TEST(BenchProgress, bar_fills_and_guesses_the_rest) {
  const std::string third = bar_words(10, 30, 5, "all_reduce 4 B");
  EXPECT_THAT(third, HasSubstr("[##########--------------------]  33 %  all_reduce 4 B"));
  EXPECT_THAT(third, HasSubstr("about 10 s left"));
  EXPECT_THAT(bar_words(0, 30, 0, "x"), ::testing::Not(HasSubstr("left")));
}

}  // namespace
}  // namespace tutti::tool
