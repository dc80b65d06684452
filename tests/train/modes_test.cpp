// Whatever the mode, bucket size, logging, transport and number of ranks: the same bits.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "support/worlds.hpp"
#include "train/toy_run.hpp"

namespace tutti::test {
namespace {

using testing::HasSubstr;

struct Case {
  WorldKind kind;
  int size;
  Dtype dtype;
  const char* transport;  // of ranks that are threads
};

std::vector<Case> cases() {
  std::vector<Case> all;
  for (Dtype dtype : {Dtype::f32, Dtype::bf16})
    for (int size : {2, 3, 4})
      for (const Case& kind :
           {Case{WorldKind::threads, 0, dtype, "inproc"}, Case{WorldKind::threads, 0, dtype, "tcp"},
            Case{WorldKind::shm, 0, dtype, "shm"}}) {
        // Under a sanitizer: three ranks by inproc, two by tcp.
        if (reduced() && size != (kind.transport == std::string("inproc") ? 3 : 2)) continue;
        if (reduced() && (dtype == Dtype::bf16) != (kind.transport == std::string("tcp"))) continue;
        if (reduced() && kind.kind == WorldKind::shm) continue;
        all.push_back({kind.kind, size, dtype, kind.transport});
      }
  all.push_back({WorldKind::threads, 2, Dtype::f16, "inproc"});
  return all;
}

World world_of(const Case& trial) {
  World world{.kind = trial.kind, .size = trial.size};
  world.tune = [transport = std::string(trial.transport)](Config& config) {
    config.transport = transport;
  };
  return world;
}

class Bits : public testing::TestWithParam<Case> {};

// Beside the full matrix: one rank alone that goes through the micro-batches of all.
TEST_P(Bits, are_equal_in_every_mode_and_for_one_rank_with_as_many_micro_batches) {
  const Case trial = GetParam();
  run(world_of(trial), [&](Context& here) {
    auto alone = here.group->split(here.rank, 0);
    ASSERT_TRUE(alone.ok()) << alone.status().to_string();
    ToyRun toy;
    toy.model.dtype = trial.dtype;
    toy.options.clip_grad = 0.5;
    ToyRun single = toy;
    single.accumulation = here.size;
    const auto expected = train_toy(*alone, single);
    ASSERT_TRUE(expected.ok()) << expected.status().to_string();
    for (const Mode& mode : five_modes())
      for (bool asynchronous : {false, true})
        for (std::size_t bucket_bytes : {std::size_t{1} << 20, std::size_t{2000}}) {
          toy.options = mode.options;
          toy.options.clip_grad = 0.5;
          toy.options.bucket_bytes = bucket_bytes;
          toy.asynchronous_log = asynchronous;
          const auto outcome = train_toy(here.group, toy);
          ASSERT_TRUE(outcome.ok()) << mode.name << ": " << outcome.status().to_string();
          EXPECT_EQ(outcome->hash, expected->hash) << mode.name << ", " << bucket_bytes;
          EXPECT_EQ(outcome->norms, expected->norms) << mode.name << ", " << bucket_bytes;
          EXPECT_EQ(outcome->losses, expected->losses) << mode.name << ", " << bucket_bytes;
        }
  });
}

INSTANTIATE_TEST_SUITE_P(Modes, Bits, testing::ValuesIn(cases()), [](const auto& info) {
  return std::string(to_string(info.param.kind)) + "_" + info.param.transport + "_" +
         std::to_string(info.param.size) + "_" + std::string(to_string(info.param.dtype));
});

// Runs one setting in all modes on threads and expects the same hash everywhere.
void expect_equal_bits(const ToyRun& toy, int size) {
  run(World{.kind = WorldKind::threads, .size = size}, [&](Context& here) {
    std::optional<ToyOutcome> first;
    for (const Mode& mode : five_modes()) {
      ToyRun this_run = toy;
      const auto given = toy.options;
      this_run.options = mode.options;
      this_run.options.clip_grad = given.clip_grad;
      this_run.options.optimizer = given.optimizer;
      this_run.options.reduction_order = given.reduction_order;
      this_run.options.grad_reduce_in_bf16 = given.grad_reduce_in_bf16;
      this_run.options.bucket_bytes = 3000;
      auto outcome = train_toy(here.group, this_run);
      ASSERT_TRUE(outcome.ok()) << mode.name << ": " << outcome.status().to_string();
      if (!first) first = *outcome;
      EXPECT_EQ(outcome->hash, first->hash) << mode.name;
      EXPECT_EQ(outcome->losses, first->losses) << mode.name;
      EXPECT_EQ(outcome->evaluated, first->evaluated) << mode.name;
    }
  });
}

TEST(Modes, agree_with_gradient_accumulation) {
  for (int accumulation : {1, 2, 7}) {
    ToyRun toy;
    toy.accumulation = accumulation;
    expect_equal_bits(toy, 2);
  }
}

TEST(Modes, agree_in_tree_order) {
  ToyRun toy;
  toy.options.reduction_order = ReductionOrder::tree;
  expect_equal_bits(toy, 4);
}

TEST(Modes, agree_with_gradients_that_cross_in_bf16) {
  for (const int ranks : {1, 3}) {
    ToyRun toy;
    toy.accumulation = 2;
    toy.options.grad_reduce_in_bf16 = true;
    expect_equal_bits(toy, ranks);
  }
}

TEST(Modes, agree_with_momentum_instead_of_adam) {
  ToyRun toy;
  toy.options.optimizer = train::Sgd{0.9};
  toy.options.clip_grad = 1.0;
  expect_equal_bits(toy, 3);
}

TEST(Modes, agree_when_losses_are_evaluated_between_steps) {
  ToyRun toy;
  toy.evaluate_every = 1;
  expect_equal_bits(toy, 2);
}

TEST(Modes, agree_when_a_parameter_is_used_in_turn_or_by_one_rank_only) {
  for (int kind : {0, 1, 2}) {
    ToyRun toy;
    toy.steps = 6;
    toy.change = [kind](int step, int rank, int, ToyModel::Pass& pass) {
      pass.with_extra = kind == 0 ? step % 2 == 0 : kind == 1 ? rank == 1 : step == 3 && rank == 0;
    };
    expect_equal_bits(toy, 3);
  }
}

TEST(Modes, agree_with_a_forced_infinity_which_skips_the_step) {
  ToyRun toy;
  toy.change = [](int step, int rank, int, ToyModel::Pass& pass) {
    if (step == 2 && rank == 1) pass.planted = std::numeric_limits<float>::infinity();
  };
  toy.look = [](int step, train::DataParallel& layer, const train::StepReport& report) {
    EXPECT_EQ(report.outcome, step == 2 ? train::Outcome::skipped : train::Outcome::updated);
    if (step != 2) return;
    ASSERT_EQ(report.faults.size(), 1u);
    EXPECT_EQ(report.faults[0].parameter, "layers.1.weight");
    EXPECT_EQ(layer.step_counts()[0], 2);
  };
  expect_equal_bits(toy, 3);
}

TEST(Modes, give_a_shuffled_definition_the_same_values) {
  run(World{.kind = WorldKind::threads, .size = 3}, [&](Context& here) {
    std::vector<double> expected;
    for (bool shuffled : {false, true}) {
      ToyRun toy;
      toy.options = five_modes()[4].options;
      toy.options.bucket_bytes = 2000;
      toy.options.clip_grad = 0.5;
      toy.model.shuffled_definition = shuffled;
      auto outcome = train_toy(here.group, toy);
      ASSERT_TRUE(outcome.ok()) << outcome.status().to_string();
      if (!shuffled) expected = outcome->losses;
      EXPECT_EQ(outcome->losses, expected);
    }
  });
}

}  // namespace
}  // namespace tutti::test
