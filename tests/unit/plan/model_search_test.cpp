// The search finds what plan_step would have said, in order, and says why the rest is out.
#include <gtest/gtest.h>

#include <ctime>
#include <numeric>

#include "plan/search.hpp"

namespace tutti::plan {
namespace {

std::int64_t sum(const std::map<std::string, std::int64_t>& counts) {
  return std::accumulate(counts.begin(), counts.end(), std::int64_t{0},
                         [](std::int64_t all, const auto& each) { return all + each.second; });
}

SearchOptions options_of(int ranks, std::size_t keep = 10) {
  SearchOptions options;
  options.ranks = ranks;
  options.keep = keep;
  return options;
}

TEST(model_search, candidates_fit_are_sorted_and_are_what_the_plan_says) {
  const Cluster cluster = *preset_cluster("h100-ib400");
  const Model model = *preset_model("llama2-70b");
  const SearchResult result = *search_layouts(model, cluster, options_of(512, 1000000));
  ASSERT_GT(result.fitting, 10);
  EXPECT_EQ(result.best.size(), static_cast<std::size_t>(result.fitting));
  EXPECT_EQ(result.planned, result.fitting + sum(result.too_large));
  EXPECT_EQ(result.fitting, sum(result.constraints));
  Prices prices(cluster);
  double before = 0;
  for (const Candidate& each : result.best) {
    EXPECT_EQ(each.layout.ranks(), 512);
    EXPECT_GE(each.step_s, before);
    before = each.step_s;
    const StepPlan plan = plan_step(model, each.layout, prices);
    EXPECT_TRUE(plan.fits());
    EXPECT_DOUBLE_EQ(plan.step_s, each.step_s);
    EXPECT_EQ(binding_constraint(plan), each.constraint);
  }
}

TEST(model_search, keeping_few_keeps_the_best) {
  const Cluster cluster = *preset_cluster("h100-ib400");
  const Model model = *preset_model("llama2-7b");
  const SearchResult all = *search_layouts(model, cluster, options_of(64, 1000000));
  const SearchResult three = *search_layouts(model, cluster, options_of(64, 3));
  ASSERT_EQ(three.best.size(), 3U);
  for (std::size_t i = 0; i < 3; ++i) EXPECT_DOUBLE_EQ(three.best[i].step_s, all.best[i].step_s);
}

TEST(model_search, nothing_fits_on_one_device_and_the_nearest_is_named) {
  const SearchResult result =
      *search_layouts(*preset_model("gpt3-175b"), *preset_cluster("h100-ib400"), options_of(8));
  EXPECT_EQ(result.fitting, 0);
  EXPECT_TRUE(result.best.empty());
  EXPECT_GT(result.nearest.memory_bytes, 80e9);
  EXPECT_EQ(result.nearest.constraint, Constraint::memory);
}

TEST(model_search, impossible_numbers_are_refused_with_a_reason) {
  const Cluster cluster = *preset_cluster("h100-ib400");
  const Model model = *preset_model("llama2-7b");
  EXPECT_EQ(search_layouts(model, cluster, options_of(0)).status().code(), Code::invalid_argument);
  SearchOptions options = options_of(7);
  options.base.global_batch = 1;  // seven ranks, dp 7 or pp 7
  EXPECT_EQ(search_layouts(model, cluster, options).status().code(), Code::invalid_argument);
}

TEST(model_search, ten_thousand_layouts_in_ten_seconds) {
  const Cluster cluster = *preset_cluster("h100-ib400");
  const Model model = *preset_model("gpt3-175b");
  const std::clock_t begin = std::clock();  // of this process: others may use the cores, too
  std::int64_t planned = 0;
  for (int ranks = 256; planned < 10000; ranks *= 2) {
    SearchOptions options = options_of(std::min(ranks, 4096));
    options.base.global_batch = 4096;
    options.most_tp = 64;
    planned += search_layouts(model, cluster, options)->planned;
  }
  const double spent_s = static_cast<double>(std::clock() - begin) / CLOCKS_PER_SEC;
  EXPECT_LT(spent_s * 10000 / static_cast<double>(planned), 10);
}

}  // namespace
}  // namespace tutti::plan
