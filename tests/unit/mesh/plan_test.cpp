// Plans are played on lists of indices, without a rank: every step finds what it needs where it looks, and
// leaves on every rank what its layout says.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <set>

#include "tutti/redistribution.hpp"
#include "unit/mesh/random_layouts.hpp"
#include "unit/mesh/reference_layout.hpp"

namespace tutti {
namespace {

using testing::HasSubstr;
using Kind = RedistributionStep::Kind;
using test::Indices;

// What a rank has of an element: which of the partial values are in it, one bit each.
using Terms = std::uint64_t;
using Holding = std::map<std::int64_t, Terms>;

class PlayedPlan {
 public:
  explicit PlayedPlan(const TensorLayout& from) : from_(from), now_(from) {
    for (int position = 0; position < ranks_of(from.axes); ++position) {
      const Coordinates at = coordinates_of(from.axes, position);
      at_.push_back(at);
      Holding holding;
      for (const std::int64_t element : test::held(from, at)) holding[element] = own_term(at);
      holds_.push_back(std::move(holding));
    }
  }

  // Empty: all is well.
  std::string play(const RedistributionStep& step) {
    std::vector<Holding> after;
    for (std::size_t position = 0; position < holds_.size(); ++position) {
      Holding mine;
      for (const std::int64_t element : test::held(step.after, at_[position])) {
        const auto terms = take(step, static_cast<int>(position), element);
        if (!terms)
          return std::string(to_string(step.kind)) + ": position " + std::to_string(position) +
                 " does not get element " + std::to_string(element);
        mine[element] = *terms;
        if (step.kind != Kind::make_partial && *terms != expected(step.after, at_[position]))
          return std::string(to_string(step.kind)) + " leaves a wrong fold";
      }
      after.push_back(std::move(mine));
    }
    holds_ = std::move(after);
    now_ = step.after;
    return "";
  }

 private:
  bool is_partial(const TensorLayout& layout, std::size_t axis) const {
    return layout.placements[axis].kind == AxisPlacement::Kind::partial;
  }

  // The bit of a rank's own value.
  Terms own_term(const Coordinates& at) const {
    int bit = 0;
    for (std::size_t axis = 0; axis < at.size(); ++axis)
      if (is_partial(from_, axis)) bit = bit * from_.axes[axis].size + at[axis];
    return Terms{1} << bit;
  }

  // All values along axes that were partial and are no more.
  Terms expected(const TensorLayout& layout, const Coordinates& at) const {
    Terms terms = 0;
    for (const Coordinates& other : at_) {
      bool counts = true;
      for (std::size_t axis = 0; axis < at.size(); ++axis)
        counts = counts && (!is_partial(layout, axis) || other[axis] == at[axis]);
      if (counts) terms |= own_term(other);
    }
    return terms;
  }

  // The ranks that differ from this one in the step's axes alone.
  std::vector<int> fibre(const RedistributionStep& step, int position) const {
    std::vector<int> members;
    for (int other = 0; other < static_cast<int>(at_.size()); ++other) {
      bool is_in = true;
      for (int axis = 0; axis < static_cast<int>(from_.axes.size()); ++axis)
        if (std::find(step.axes.begin(), step.axes.end(), axis) == step.axes.end())
          is_in =
              is_in && at_[static_cast<std::size_t>(other)][static_cast<std::size_t>(axis)] ==
                           at_[static_cast<std::size_t>(position)][static_cast<std::size_t>(axis)];
      if (is_in) members.push_back(other);
    }
    return members;
  }

  std::optional<Terms> take(const RedistributionStep& step, int position,
                            std::int64_t element) const {
    const auto have = [&](int other) -> std::optional<Terms> {
      const Holding& holding = holds_[static_cast<std::size_t>(other)];
      const auto at = holding.find(element);
      return at == holding.end() ? std::nullopt : std::optional(at->second);
    };
    if (step.kind == Kind::slice || step.kind == Kind::make_partial) return have(position);
    Terms folded = 0;
    std::set<Terms> found;
    for (const int member : fibre(step, position)) {
      const auto terms = have(member);
      if (step.kind == Kind::all_reduce || step.kind == Kind::reduce_scatter) {
        if (!terms || (folded & *terms) != 0) return std::nullopt;
        folded |= *terms;
      } else if (terms) {
        found.insert(*terms);
      }
    }
    if (folded != 0) return folded;
    return found.size() == 1 ? std::optional(*found.begin()) : std::nullopt;
  }

  const TensorLayout& from_;
  TensorLayout now_;
  std::vector<Coordinates> at_;  // by position
  std::vector<Holding> holds_;
};

void expect_right(const RedistributionPlan& plan, const RedistributionChain& chain) {
  PlayedPlan played(plan.from);
  for (const RedistributionStep& step : chain.steps) {
    ASSERT_TRUE(step.after.check().ok()) << step.after.check().to_string();
    ASSERT_EQ(played.play(step), "") << describe(plan);
  }
  for (int position = 0; position < ranks_of(plan.to.axes); ++position)
    ASSERT_EQ(test::held(chain.steps.empty() ? plan.from : chain.steps.back().after,
                         coordinates_of(plan.to.axes, position)),
              test::held(plan.to, coordinates_of(plan.to.axes, position)));
}

RedistributionPlan planned(const TensorLayout& from, const TensorLayout& to,
                           const RedistributionCosts& costs = RedistributionCosts::uniform(1e-6,
                                                                                           1e10)) {
  auto plan = plan_redistribution(from, to, costs);
  EXPECT_TRUE(plan.ok()) << plan.status().to_string();
  return plan.ok() ? *plan : RedistributionPlan{};
}

// Bytes that a rank sends.
double moved(const StepTraffic& traffic) {
  return RedistributionCosts::uniform(0, 1).seconds(traffic);
}

// "all_gather dp, slice tp".
std::string words(const RedistributionChain& chain) {
  std::string text;
  for (const RedistributionStep& step : chain.steps) {
    text += (text.empty() ? "" : ", ") + std::string(to_string(step.kind));
    for (const int axis : step.axes)
      text += " " + step.after.axes[static_cast<std::size_t>(axis)].name;
  }
  return text;
}

const MeshAxes kTwoByFour{{"dp", 2}, {"tp", 4}};

TensorLayout matrix(std::vector<AxisPlacement> placements, MeshAxes axes = kTwoByFour) {
  return {std::move(axes), std::move(placements), {1024, 4096}, Dtype::bf16};
}

TEST(RedistributionPlan, does_nothing_where_nothing_changes) {
  const auto plan = planned(matrix({shard(0), replicate()}), matrix({shard(0), replicate()}));
  EXPECT_TRUE(plan.chain.steps.empty());
  EXPECT_EQ(plan.chain.rank_bytes, 0);
}

TEST(RedistributionPlan, slices_for_nothing) {
  const auto plan = planned(matrix({replicate(), replicate()}), matrix({shard(1), shard(0)}));
  EXPECT_EQ(words(plan.chain), "slice dp tp");
  EXPECT_EQ(plan.chain.seconds, 0);
}

TEST(RedistributionPlan, takes_the_collective_that_fits) {
  // Where messages cost more than bytes.
  const RedistributionCosts costs = {
      [](const StepTraffic& traffic) { return 1 + 1e-12 * moved(traffic); }};
  const auto chain = [&](std::vector<AxisPlacement> from, std::vector<AxisPlacement> to) {
    return words(planned(matrix(std::move(from)), matrix(std::move(to)), costs).chain);
  };
  EXPECT_EQ(chain({shard(0), replicate()}, {shard(1), replicate()}), "all_to_all dp");
  EXPECT_EQ(chain({replicate(), partial()}, {replicate(), shard(0)}), "reduce_scatter tp");
  EXPECT_EQ(chain({partial(), partial()}, {replicate(), replicate()}), "all_reduce dp tp");
  EXPECT_EQ(chain({shard(0), shard(0)}, {replicate(), replicate()}), "all_gather dp tp");
  EXPECT_EQ(chain({shard(0), shard(1)}, {replicate(), shard(1)}), "all_gather dp");
}

// From a half to a quarter of each rank's own: only what is lacking moves, where torch gathers it all.
TEST(RedistributionPlan, fetches_only_what_is_lacking) {
  const auto plan = planned(matrix({shard(0), replicate()}), matrix({replicate(), shard(0)}));
  EXPECT_EQ(words(plan.naive), "all_gather dp, slice tp");
  EXPECT_EQ(words(plan.chain), "transfer dp");
  EXPECT_EQ(plan.naive.rank_bytes, 1024 * 4096);  // half of 8 MiB
  EXPECT_EQ(plan.chain.rank_bytes, 1024 * 4096 / 2);
  EXPECT_LT(plan.chain.seconds, plan.naive.seconds);
}

TEST(RedistributionPlan, shares_out_what_replicas_send) {
  const MeshAxes axes{{"dp", 4}, {"tp", 4}};
  const auto plan =
      planned(matrix({shard(0), replicate()}, axes), matrix({replicate(), shard(0)}, axes));
  // A quarter of the 8 MiB each, though three ranks want every quarter.
  EXPECT_EQ(plan.chain.rank_bytes, 1024 * 4096 * 2 / 4);
}

TEST(RedistributionPlan, crosses_hosts_once_where_ranks_of_a_host_can_share) {
  // Within a host everything is nearly free; dp crosses hosts.
  const RedistributionCosts costs{[](const StepTraffic& traffic) {
                                    const bool crosses =
                                        std::find(traffic.axes.begin(), traffic.axes.end(), 0) !=
                                        traffic.axes.end();
                                    return moved(traffic) * (crosses ? 1e-9 : 1e-12);
                                  },
                                  {0, 0, 0, 0, 1, 1, 1, 1}};
  const auto plan =
      planned(matrix({shard(0), replicate()}), matrix({replicate(), replicate()}), costs);
  EXPECT_EQ(words(plan.chain), "slice tp, all_gather dp, all_gather tp");
  EXPECT_LT(plan.chain.seconds, plan.naive.seconds / 3);
}

TEST(RedistributionPlan, folds_an_axis_that_another_one_nests_in_without_gathering) {
  const TensorLayout from{kTwoByFour, {partial(), shard(0)}, {1 << 12}, Dtype::f32};
  TensorLayout to = from;
  to.placements = {shard(0), shard(0)};
  const auto plan = planned(from, to, RedistributionCosts::uniform(1e-9, 1e10));
  EXPECT_EQ(words(plan.naive), "all_gather tp, reduce_scatter dp, slice tp");
  EXPECT_EQ(words(plan.chain), "reduce_scatter dp, transfer dp tp");
  expect_right(plan, plan.chain);
}

TEST(RedistributionPlan, makes_partial_what_was_not) {
  const auto plan = planned(matrix({replicate(), shard(0)}), matrix({partial(), partial()}));
  EXPECT_EQ(words(plan.chain), "all_gather tp, make_partial dp tp");
  const auto kept = planned(matrix({partial(), shard(0)}), matrix({partial(), replicate()}));
  EXPECT_EQ(words(kept.chain), "all_gather tp");
  const auto other =
      planned(matrix({partial(), replicate()}), matrix({partial(ReduceOp::max), replicate()}));
  EXPECT_EQ(words(other.chain), "all_reduce dp, make_partial dp");
}

TEST(RedistributionPlan, knows_torchs_chain) {
  const auto naive = [](std::vector<AxisPlacement> from, std::vector<AxisPlacement> to) {
    return words(planned(matrix(std::move(from)), matrix(std::move(to))).naive);
  };
  EXPECT_EQ(naive({shard(0), shard(0)}, {replicate(), shard(0)}),
            "all_gather tp, all_gather dp, slice tp");
  EXPECT_EQ(naive({shard(0), shard(1)}, {shard(1), shard(0)}),
            "all_gather tp, all_gather dp, slice dp tp");
  EXPECT_EQ(naive({partial(), shard(0)}, {shard(0), shard(1)}),
            "all_gather tp, slice tp, reduce_scatter dp");
  EXPECT_EQ(naive({shard(0), replicate()}, {shard(1), replicate()}), "all_gather dp, slice dp");
}

TEST(RedistributionPlan, is_refused_where_ends_do_not_fit) {
  const RedistributionCosts costs = RedistributionCosts::uniform(1e-6, 1e10);
  const auto why = [&](const TensorLayout& from, const TensorLayout& to) {
    return plan_redistribution(from, to, costs).status().message();
  };
  const TensorLayout from = matrix({shard(0), replicate()});
  TensorLayout to = from;
  to.shape = {1024, 4095};
  EXPECT_THAT(why(from, to), HasSubstr("1024x4096 does not become one of 1024x4095"));
  to = from;
  to.dtype = Dtype::f32;
  EXPECT_THAT(why(from, to), HasSubstr("bf16 does not become f32"));
  to = from;
  to.axes[1].size = 8;
  EXPECT_THAT(why(from, to), HasSubstr("dp 2 x tp 4 to a mesh dp 2 x tp 8"));
  to = from;
  to.placements = {shard(7), replicate()};
  EXPECT_THAT(why(from, to), HasSubstr("to: layout: shard(7)"));
  EXPECT_FALSE(plan_redistribution(from, from, {}).ok());
  EXPECT_FALSE(plan_redistribution(from, from, {costs.seconds, {0, 1}}).ok());
}

// Random tensors, meshes, placements, prices and hosts: every step of both chains is right, and no plan is
// dearer than the naive one.
TEST(RedistributionPlan, is_right_and_no_dearer_than_the_naive_one_whatever_is_asked) {
  test::RandomLayouts random(42);
  int shorter = 0;
  for (int round = 0; round < 1500; ++round) {
    const TensorLayout tensor = random.tensor(12);
    const ReduceOp op = random.draw(0, 1) == 0 ? ReduceOp::sum : ReduceOp::bxor;
    const TensorLayout from = random.placed(tensor, op);
    const TensorLayout to = random.placed(tensor, random.draw(0, 9) == 0 ? ReduceOp::max : op);
    RedistributionCosts costs =
        RedistributionCosts::uniform(random.draw(0, 3) * 1e-6, random.draw(1, 10) * 1e6);
    for (int position = 0; position < ranks_of(tensor.axes); ++position)
      costs.hosts.push_back(random.draw(0, 2));
    const auto plan = plan_redistribution(from, to, costs);
    ASSERT_TRUE(plan.ok()) << plan.status().to_string();
    ASSERT_LE(plan->chain.seconds, plan->naive.seconds * (1 + 1e-12)) << describe(*plan);
    shorter += plan->chain.seconds < plan->naive.seconds;
    expect_right(*plan, plan->chain);
    expect_right(*plan, plan->naive);
    if (HasFatalFailure()) FAIL() << "round " << round;
  }
  EXPECT_GT(shorter, 250);
}

// A search over all arrangements of five axes and hundreds of ranks ends soon.
TEST(RedistributionPlan, is_found_soon_on_large_meshes) {
  const MeshAxes axes{{"pp", 4}, {"dp", 8}, {"ep", 2}, {"cp", 2}, {"tp", 8}};
  const TensorLayout from{
      axes, {replicate(), shard(0), shard(1), partial(), shard(1)}, {8192, 8192, 64}, Dtype::bf16};
  TensorLayout to = from;
  to.placements = {shard(0), shard(1), shard(0), shard(2), replicate()};
  const auto began = std::chrono::steady_clock::now();
  const auto plan = planned(from, to);
  EXPECT_LT(std::chrono::steady_clock::now() - began, std::chrono::seconds(60));
  EXPECT_LE(plan.chain.seconds, plan.naive.seconds);
}

}  // namespace
}  // namespace tutti
