// Learning rates against values worked out by hand from Megatron's rules.
#include "tutti/train/learning_rate.hpp"

#include <gtest/gtest.h>

#include <cmath>

namespace tutti::train {
namespace {

LearningRate rate(DecayStyle style) {
  return {.lr = 0.8, .min_lr = 0.2, .warmup_steps = 4, .decay_steps = 12, .style = style};
}

TEST(LearningRate, warms_up_linearly_and_whatever_the_style) {
  for (const auto style : {DecayStyle::constant, DecayStyle::linear, DecayStyle::cosine,
                           DecayStyle::inverse_square_root}) {
    EXPECT_DOUBLE_EQ(rate(style).at(1), 0.2);
    EXPECT_DOUBLE_EQ(rate(style).at(2), 0.4);
    EXPECT_DOUBLE_EQ(rate(style).at(3), 0.6);
    EXPECT_DOUBLE_EQ(rate(style).at(4), 0.8);
  }
}

TEST(LearningRate, constant_never_falls) {
  EXPECT_EQ(rate(DecayStyle::constant).at(5), 0.8);
  EXPECT_EQ(rate(DecayStyle::constant).at(1'000'000), 0.8);
}

TEST(LearningRate, linear_falls_from_the_end_of_the_warm_up_to_the_smallest) {
  const auto linear = rate(DecayStyle::linear);
  EXPECT_DOUBLE_EQ(linear.at(5), 0.2 + 0.6 * 7 / 8);
  EXPECT_DOUBLE_EQ(linear.at(8), 0.5);
  EXPECT_DOUBLE_EQ(linear.at(12), 0.2);
  EXPECT_EQ(linear.at(13), 0.2);
}

TEST(LearningRate, cosine_is_half_way_down_in_the_middle) {
  const auto cosine = rate(DecayStyle::cosine);
  EXPECT_DOUBLE_EQ(cosine.at(6), 0.2 + 0.6 * 0.5 * (1 + std::sqrt(0.5)));
  EXPECT_DOUBLE_EQ(cosine.at(8), 0.5);
  EXPECT_DOUBLE_EQ(cosine.at(10), 0.2 + 0.6 * 0.5 * (1 - std::sqrt(0.5)));
  EXPECT_DOUBLE_EQ(cosine.at(12), 0.2);
  EXPECT_EQ(cosine.at(100), 0.2);
}

TEST(LearningRate, inverse_square_root_counts_from_the_first_step_and_stops_at_the_smallest) {
  auto root = rate(DecayStyle::inverse_square_root);
  EXPECT_DOUBLE_EQ(root.at(9), 0.8 * 2 / 3);
  EXPECT_EQ(root.at(13), 0.2);  // past decay_steps
  root.decay_steps = 1000;
  EXPECT_DOUBLE_EQ(root.at(16), 0.4);
  EXPECT_EQ(root.at(400), 0.2);  // 0.8 · 2 / 20 is less
  root.warmup_steps = 0;
  EXPECT_DOUBLE_EQ(root.at(1), 0.8);
  EXPECT_DOUBLE_EQ(root.at(4), 0.4);
}

TEST(LearningRate, wsd_stays_up_and_falls_at_the_end) {
  LearningRate wsd = rate(DecayStyle::wsd);
  wsd.wsd_steps = 4;
  for (const WsdStyle style :
       {WsdStyle::exponential, WsdStyle::linear, WsdStyle::cosine, WsdStyle::minus_sqrt}) {
    wsd.wsd_style = style;
    EXPECT_EQ(wsd.at(5), 0.8);
    EXPECT_EQ(wsd.at(8), 0.8);
    EXPECT_NEAR(wsd.at(12), 0.2, 1e-15);
    EXPECT_EQ(wsd.at(13), 0.2);
  }
  const auto half_way = [&](WsdStyle style) {
    wsd.wsd_style = style;
    return wsd.at(9);
  };
  EXPECT_DOUBLE_EQ(half_way(WsdStyle::exponential),
                   0.2 + 0.6 * 0.681792830507429);  // 2·2^(−1/4) − 1
  EXPECT_DOUBLE_EQ(half_way(WsdStyle::linear), 0.65);
  EXPECT_DOUBLE_EQ(half_way(WsdStyle::cosine), 0.2 + 0.6 * 0.8535533905932737);
  EXPECT_DOUBLE_EQ(half_way(WsdStyle::minus_sqrt), 0.5);
}

TEST(LearningRate, warms_up_from_where_it_is_told) {
  LearningRate linear = rate(DecayStyle::linear);
  linear.warmup_init = 0.4;
  EXPECT_DOUBLE_EQ(linear.at(1), 0.5);
  EXPECT_DOUBLE_EQ(linear.at(4), 0.8);
  EXPECT_DOUBLE_EQ(linear.at(8), 0.5);
}

TEST(LearningRate, no_warm_up_and_nothing_left_to_decay_are_fine) {
  auto linear = rate(DecayStyle::linear);
  linear.warmup_steps = 0;
  EXPECT_DOUBLE_EQ(linear.at(3), 0.2 + 0.6 * 9 / 12);
  linear.warmup_steps = 12;  // up to the very end
  EXPECT_DOUBLE_EQ(linear.at(12), 0.8);
  EXPECT_EQ(linear.at(13), 0.2);
}

TEST(LearningRate, styles_have_words) {
  for (const char* word : {"constant", "linear", "cosine", "inverse-square-root", "WSD"}) {
    const auto style = parse_decay_style(word);
    ASSERT_TRUE(style) << word;
    EXPECT_EQ(to_string(*style), word);
  }
  EXPECT_FALSE(parse_decay_style("inverse_square_root"));
  EXPECT_FALSE(parse_decay_style(""));
}

TEST(LearningRate, reads_back_from_its_words_to_the_bit) {
  for (const DecayStyle style : {DecayStyle::constant, DecayStyle::inverse_square_root}) {
    const LearningRate rate{.lr = 0.1 + 0.2,
                            .min_lr = 1e-300,
                            .warmup_steps = 7,
                            .decay_steps = 1'000'000,
                            .style = style};
    auto words = to_words(rate);
    words["seed"] = "42";
    EXPECT_FALSE(words.contains("lr_wsd_decay_iters"));
    const auto back = learning_rate_of(words);
    ASSERT_TRUE(back);
    EXPECT_EQ(back->lr, rate.lr);
    EXPECT_EQ(back->min_lr, rate.min_lr);
    EXPECT_EQ(back->warmup_steps, rate.warmup_steps);
    EXPECT_EQ(back->decay_steps, rate.decay_steps);
    EXPECT_EQ(back->style, rate.style);
  }
}

TEST(LearningRate, is_not_made_of_words_that_are_missing_or_something_else) {
  const auto good = to_words(
      LearningRate{.style = DecayStyle::wsd, .wsd_steps = 5, .wsd_style = WsdStyle::cosine});
  for (const auto& [name, word] : good) {
    auto without = good, wrong = good;
    without.erase(name);
    wrong[name] += "x";
    EXPECT_FALSE(learning_rate_of(without)) << name;
    EXPECT_FALSE(learning_rate_of(wrong)) << name;
  }
}

}  // namespace
}  // namespace tutti::train
