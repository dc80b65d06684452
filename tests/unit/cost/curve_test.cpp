// A curve never falls, and lies near what was measured.
#include "cost/curve.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <random>

#ifdef TUTTI_HAVE_RAPIDCHECK
#include <rapidcheck.h>
#endif

namespace tutti::cost {
namespace {

using testing::HasSubstr;

bool rises(const Curve& curve) {
  double last = 0;
  for (double bytes = 1; bytes < 1e10; bytes *= 1.07) {
    const double now = curve.seconds(bytes);
    if (now < last) return false;
    last = now;
  }
  return true;
}

TEST(Curve, without_knots_everything_is_free) {
  EXPECT_TRUE(Curve().empty());
  EXPECT_EQ(Curve().seconds(1e6), 0);
  EXPECT_EQ(Curve::fit({}).seconds(1e6), 0);
}

TEST(Curve, goes_straight_between_knots_from_the_origin_and_on_as_between_the_last_two) {
  const auto curve = Curve::from_knots({{100, 1}, {300, 5}});
  ASSERT_TRUE(curve.ok());
  EXPECT_DOUBLE_EQ(curve->seconds(0), 0);
  EXPECT_DOUBLE_EQ(curve->seconds(50), 0.5);
  EXPECT_DOUBLE_EQ(curve->seconds(100), 1);
  EXPECT_DOUBLE_EQ(curve->seconds(200), 3);
  EXPECT_DOUBLE_EQ(curve->seconds(300), 5);
  EXPECT_DOUBLE_EQ(curve->seconds(600), 11);
  EXPECT_DOUBLE_EQ(curve->share(50, 300), 5.0 / 6);
}

// A link that lets the first 128 KiB pass at full speed and then has 100 MB/s.
TEST(Curve, knows_the_rate_of_a_link_whose_first_bytes_are_free) {
  const auto seconds = [](double bytes) { return std::max(1e-6, (bytes - 131072) / 100e6); };
  std::vector<Sample> samples;
  for (const double bytes : {16384., 65536., 262144., 1048576.})
    samples.push_back({bytes, seconds(bytes)});
  const Curve curve = Curve::fit(samples);
  for (const double bytes : {4e6, 16e6, 64e6})
    EXPECT_NEAR(curve.seconds(bytes) / seconds(bytes), 1, 1e-9) << bytes;
}

TEST(Curve, goes_on_at_its_mean_where_more_seemed_to_cost_nothing) {
  const auto curve = Curve::from_knots({{100, 4}, {200, 4}});
  ASSERT_TRUE(curve.ok());
  EXPECT_DOUBLE_EQ(curve->seconds(400), 8);
}

TEST(Curve, a_larger_size_that_seemed_cheaper_shares_one_cost_with_the_smaller) {
  const std::vector<Sample> samples = {{1, 1}, {2, 4}, {3, 2}, {4, 10}};
  const Curve curve = Curve::fit(samples);
  ASSERT_EQ(curve.knots().size(), 4U);
  EXPECT_DOUBLE_EQ(curve.knots()[0].seconds, 1);
  EXPECT_DOUBLE_EQ(curve.knots()[1].seconds, curve.knots()[2].seconds);
  EXPECT_NEAR(curve.knots()[1].seconds, std::sqrt(8.0), 1e-12);
  EXPECT_NEAR(curve.knots()[3].seconds, 10, 1e-12);
}

TEST(Curve, one_wild_sample_among_several_of_a_size_does_not_count) {
  const std::vector<Sample> samples = {{8, 1}, {8, 1.1}, {8, 500}, {16, 2}, {16, 2.1}, {16, 2.2}};
  EXPECT_NEAR(Curve::fit(samples).seconds(8), 1.1, 1e-9);
}

TEST(Curve, samples_that_cannot_be_are_passed_over) {
  const std::vector<Sample> samples = {{0, 1}, {-4, 1}, {8, 0}, {8, NAN}, {INFINITY, 1}, {8, 3}};
  const Curve curve = Curve::fit(samples);
  ASSERT_EQ(curve.knots().size(), 1U);
  EXPECT_NEAR(curve.seconds(8), 3, 1e-12);
}

TEST(Curve, knots_that_fall_or_do_not_move_on_are_refused) {
  const auto why = [](std::vector<Curve::Knot> knots) {
    const auto curve = Curve::from_knots(std::move(knots));
    return curve.ok() ? "" : curve.status().message();
  };
  EXPECT_THAT(why({{1, 2}, {2, 1}}), HasSubstr("point 1 costs less"));
  EXPECT_THAT(why({{2, 1}, {2, 1}}), HasSubstr("point 1 is not larger"));
  EXPECT_THAT(why({{0, 1}}), HasSubstr("point 0 has a size"));
  EXPECT_THAT(why({{1, -1}}), HasSubstr("point 0 has a time"));
  EXPECT_THAT(why({{1, NAN}}), HasSubstr("point 0 has a time"));
  EXPECT_EQ(why({{1, 1}, {2, 1}}), "");
}

// Samples of a rising truth, each size several times, with noise that mostly adds.
struct Synthetic {
  std::vector<Sample> truth;
  std::vector<Sample> noisy;
};
Synthetic synthesize(std::uint32_t seed, double noise) {
  std::mt19937 random(seed);
  std::uniform_real_distribution<double> unit(0, 1);
  Synthetic made;
  double seconds = 1e-8 * (1 + unit(random));
  for (double bytes = 1024; bytes <= 64 << 20; bytes *= 4) {
    made.truth.push_back({bytes, seconds});
    for (int i = 0; i < 9; ++i) made.noisy.push_back({bytes, seconds * (1 + noise * unit(random))});
    seconds *= 1.5 + 4 * unit(random);
  }
  return made;
}

#ifdef TUTTI_HAVE_RAPIDCHECK
TEST(Curve, is_monotone_whatever_was_measured) {
  EXPECT_TRUE(rc::check([] {
    std::vector<Sample> samples;
    for (const auto& [bytes, nanoseconds] :
         *rc::gen::arbitrary<std::vector<std::pair<std::uint32_t, std::uint32_t>>>())
      samples.push_back({static_cast<double>(bytes), nanoseconds * 1e-9});
    const Curve curve = Curve::fit(samples);
    RC_ASSERT(rises(curve));
    // What was fitted can be written down and taken up again.
    RC_ASSERT(Curve::from_knots(curve.knots()).ok());
  }));
}

TEST(Curve, lies_within_the_noise_of_the_truth) {
  EXPECT_TRUE(rc::check([] {
    const auto seed = *rc::gen::arbitrary<std::uint32_t>();
    const double noise = *rc::gen::inRange(0, 80) / 100.0;
    const Synthetic made = synthesize(seed, noise);
    const Curve curve = Curve::fit(made.noisy);
    RC_ASSERT(rises(curve));
    for (const Sample& sample : made.truth) {
      const double ratio = curve.seconds(sample.bytes) / sample.seconds;
      RC_ASSERT(ratio >= 1 - 1e-9);
      RC_ASSERT(ratio <= 1 + noise + 1e-9);
    }
  }));
}
#else
TEST(Curve, properties_need_rapidcheck) { GTEST_SKIP() << "RapidCheck is not installed"; }
#endif

TEST(Curve, noise_of_printed_seeds_stays_within_bounds) {
  for (std::uint32_t seed = 0; seed < 50; ++seed) {
    const Synthetic made = synthesize(seed, 0.5);
    const Curve curve = Curve::fit(made.noisy);
    ASSERT_TRUE(rises(curve)) << seed;
    for (const Sample& sample : made.truth)
      ASSERT_NEAR(curve.seconds(sample.bytes) / sample.seconds, 1.25, 0.26) << seed;
  }
}

}  // namespace
}  // namespace tutti::cost
