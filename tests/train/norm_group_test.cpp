// A model that is cut over ranks: the norm of the whole of it clips every part, and a fault in one
// part skips the step in all.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>

#include "support/worlds.hpp"
#include "train/toy_run.hpp"

namespace tutti::test {
namespace {

using testing::AllOf;
using testing::HasSubstr;

constexpr int kSteps = 4;
constexpr double kClip = 0.25;

// Rank r trains part r mod 2 of a model, together with ranks of the same part. Parts are toys of
// their own, of different shape, as two stages of a pipeline are.
struct Part {
  explicit Part(Context& here) : number(here.rank % 2), replica(here.rank / 2) {
    data = *here.group->split(number, here.rank, {"data"});
  }
  ToyModel model() const {
    return ToyModel({.layers = 2 + number,
                     .width = 16 + 8 * number,
                     .prefix = number == 0 ? "first." : "second."});
  }
  // Null: each part is clipped by its own norm.
  Result<std::unique_ptr<train::DataParallel>> layer(const ToyModel& toy,
                                                     std::shared_ptr<Group> everyone,
                                                     const Mode& mode = five_modes()[4],
                                                     double clip = kClip) const {
    train::DataParallelOptions options = mode.options;
    options.bucket_bytes = 2000;
    options.groups = {{}, {}};
    options.optimizer = train::Sgd{0};
    options.clip_grad = clip;
    return train::DataParallel::create({data, std::move(everyone)}, toy.parameters(), options);
  }

  int number;   // of the part
  int replica;  // of that
  std::shared_ptr<Group> data;
};

// The gradient of one step is the same, whatever it is then clipped to.
double own_norm(const Part& part) {
  ToyModel toy = part.model();
  auto layer = part.layer(toy, nullptr);
  EXPECT_TRUE(layer.ok()) << layer.status().to_string();
  toy.attach(**layer);
  EXPECT_TRUE(toy.run(toy_sequence(part.replica), {}).ok());
  return (*layer)->step({.lr = 0, .tokens = 5})->grad_norm;
}

double whole_norm(Context& here, double own) {
  double norms[2] = {0, 0};
  norms[here.rank % 2] = own;
  EXPECT_TRUE(here.group->all_reduce(Buffer::of(norms, 2), ReduceOp::max).ok());
  return std::sqrt(norms[0] * norms[0] + norms[1] * norms[1]);
}

TEST(NormGroup, sums_the_norm_over_all_parts_of_a_model) {
  run(World{.kind = WorldKind::threads, .size = 4}, [](Context& here) {
    const Part part(here);
    const double own = own_norm(part);
    const double expected = whole_norm(here, own);
    ASSERT_GT(expected, own * 1.1) << "or the trial says nothing";
    for (const Mode& mode : five_modes()) {
      ToyModel toy = part.model();
      auto layer = part.layer(toy, here.group, mode);
      ASSERT_TRUE(layer.ok()) << layer.status().to_string();
      toy.attach(**layer);
      ASSERT_TRUE(toy.run(toy_sequence(part.replica), {}).ok());
      const auto report = (*layer)->step({.lr = 0, .tokens = 5});
      ASSERT_TRUE(report.ok()) << report.status().to_string();
      EXPECT_NEAR(report->grad_norm, expected, 1e-12 * expected) << mode.name;
    }
  });
}

// With plain SGD the step is lr · gradient · clip / norm: parts that the whole norm clips go
// exactly as far as those that are told a smaller bound for their own.
TEST(NormGroup, clips_every_part_by_the_norm_of_all) {
  run(World{.kind = WorldKind::threads, .size = 4}, [](Context& here) {
    const Part part(here);
    const double own = own_norm(part);
    const double expected = whole_norm(here, own);
    ASSERT_GT(own, kClip) << "or nothing is clipped";
    const auto weight = [&](std::shared_ptr<Group> everyone, double clip) {
      ToyModel toy = part.model();
      auto layer = part.layer(toy, std::move(everyone), five_modes()[4], clip);
      EXPECT_TRUE(layer.ok()) << layer.status().to_string();
      toy.attach(**layer);
      EXPECT_TRUE(toy.run(toy_sequence(part.replica), {}).ok());
      EXPECT_TRUE((*layer)->step({.lr = 1, .tokens = 5}).ok());
      EXPECT_TRUE((*layer)->parameters_ready().ok());
      return static_cast<const float*>(
          (*layer)->parameter(toy.index_of("layers.0.weight")).data)[3];
    };
    const float alone = weight(nullptr, kClip * own / expected);
    EXPECT_NE(alone, weight(nullptr, kClip));
    EXPECT_NEAR(weight(here.group, kClip), alone, 1e-6);
  });
}

TEST(NormGroup, of_the_same_ranks_changes_no_bit_and_costs_no_collective) {
  run(World{.kind = WorldKind::threads, .size = 2}, [](Context& here) {
    auto other = here.group->split(0, -here.rank, {"reversed"});
    ASSERT_TRUE(other.ok());
    std::vector<std::string> hashes;
    for (const auto& norm : {std::shared_ptr<Group>(), *other}) {
      ToyModel toy({});
      train::DataParallelOptions options = five_modes()[4].options;
      options.groups = {{}, {}};
      options.clip_grad = kClip;
      auto layer = train::DataParallel::create({here.group, norm}, toy.parameters(), options);
      ASSERT_TRUE(layer.ok()) << layer.status().to_string();
      toy.attach(**layer);
      for (int step = 0; step < kSteps; ++step) {
        ASSERT_TRUE(toy.run(toy_sequence(here.rank), {}).ok());
        ASSERT_TRUE((*layer)->step({.lr = 0.01, .tokens = 5}).ok());
        const auto times = (*layer)->take_times();
        EXPECT_EQ(std::count_if(times.collectives.begin(), times.collectives.end(),
                                [](const auto& one) { return one.bucket < 0; }),
                  1);
      }
      hashes.push_back(*(*layer)->weight_hash());
    }
    EXPECT_EQ(hashes[0], hashes[1]);
  });
}

TEST(NormGroup, a_fault_in_one_part_is_named_and_skips_the_step_in_all) {
  run(World{.kind = WorldKind::threads, .size = 4}, [](Context& here) {
    const Part part(here);
    ToyModel toy = part.model();
    auto layer = part.layer(toy, here.group);
    ASSERT_TRUE(layer.ok()) << layer.status().to_string();
    toy.attach(**layer);
    const std::string before = *(*layer)->weight_hash();
    ToyModel::Pass pass;
    pass.planted = here.rank == 3 ? std::nanf("") : 0.0F;
    ASSERT_TRUE(toy.run(toy_sequence(part.replica), pass).ok());
    const auto report = (*layer)->step({.lr = 0.01, .tokens = 5});
    ASSERT_TRUE(report.ok()) << report.status().to_string();
    EXPECT_EQ(report->outcome, train::Outcome::skipped);
    EXPECT_EQ(*(*layer)->weight_hash(), before);
    ASSERT_EQ(report->faults.size(), 1u);
    EXPECT_EQ(report->faults[0].parameter, "second.layers.1.weight");
    EXPECT_EQ(report->faults[0].data_group, 1) << "the lowest rank of part 1";
    // The next step goes well.
    ASSERT_TRUE(toy.run(toy_sequence(part.replica), {}).ok());
    EXPECT_EQ((*layer)->step({.lr = 0.01, .tokens = 5})->outcome, train::Outcome::updated);
    // A wish to stop is heard in every part, too.
    for (const bool stop : {true, false}) {
      ASSERT_TRUE(toy.run(toy_sequence(part.replica), {}).ok());
      const bool mine = stop && here.rank == 3;
      EXPECT_EQ((*layer)->step({.lr = 0.01, .tokens = 5, .stop = mine})->stop, stop);
    }
  });
}

TEST(NormGroup, parts_that_count_different_tokens_are_told_so) {
  run(World{.kind = WorldKind::threads, .size = 4}, [](Context& here) {
    const Part part(here);
    ToyModel toy = part.model();
    auto layer = part.layer(toy, here.group);
    ASSERT_TRUE(layer.ok()) << layer.status().to_string();
    toy.attach(**layer);
    ASSERT_TRUE(toy.run(toy_sequence(part.replica), {}).ok());
    const auto report = (*layer)->step({.lr = 0.01, .tokens = 5 + part.number});
    EXPECT_EQ(report.status().code(), Code::mismatch);
    EXPECT_THAT(report.status().message(), AllOf(HasSubstr("10 tokens"), HasSubstr("12")));
  });
}

}  // namespace
}  // namespace tutti::test
