// Training on a GPU: the bits are those of the CPU, in every mode.
#include "train/gpu.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <csignal>

#include "support/worlds.hpp"
#include "train/folder.hpp"
#include "train/toy_run.hpp"
#include "train/training.hpp"
#include "tutti/train/checkpoint.hpp"

namespace tutti::test {
namespace {

class OnGpu : public testing::Test {
 protected:
  void SetUp() override {
    if (const std::string why = no_gpu(); !why.empty()) GTEST_SKIP() << why;
  }
};

void expect_cpu_bits_in_every_mode(const World& world, const ToyRun& given) {
  run(world, [&](Context& here) {
    ToyRun toy = given;
    toy.options.bucket_bytes = 2000;
    const auto expected = train_toy(here.group, toy);
    ASSERT_TRUE(expected.ok()) << expected.status().to_string();
    const GpuStream stream;
    std::vector<Mode> modes = five_modes();
    // With several micro-batches gradients are summed in another order there.
    if (given.accumulation == 1)
      for (const Mode& mode : zero_modes())
        if (mode.options.zero == 2) modes.push_back(mode);
    for (const Mode& mode : modes) {
      toy.options = mode.options;
      toy.options.clip_grad = given.options.clip_grad;
      toy.options.optimizer = given.options.optimizer;
      toy.options.check_for_nan = given.options.check_for_nan;
      toy.options.grad_reduce_in_bf16 = given.options.grad_reduce_in_bf16;
      toy.options.bucket_bytes = 2000;
      stream.use(toy.options);
      const auto outcome = train_toy(here.group, toy);
      ASSERT_TRUE(outcome.ok()) << mode.name << ": " << outcome.status().to_string();
      EXPECT_EQ(outcome->hash, expected->hash) << mode.name;
      EXPECT_EQ(outcome->norms, expected->norms) << mode.name;
      EXPECT_EQ(outcome->losses, expected->losses) << mode.name;
    }
  });
}

TEST_F(OnGpu, every_mode_gives_the_bits_of_the_cpu) {
  for (const Dtype dtype : {Dtype::f32, Dtype::bf16, Dtype::f16})
    for (const int size : {2, 3}) {
      if (dtype == Dtype::f16 && size == 3) continue;
      ToyRun toy;
      toy.model.dtype = dtype;
      toy.options.clip_grad = 0.5;
      toy.options.grad_reduce_in_bf16 = dtype == Dtype::f16;
      expect_cpu_bits_in_every_mode({.kind = WorldKind::threads, .size = size}, toy);
    }
}

TEST_F(OnGpu, ranks_in_processes_of_their_own_give_the_bits_of_the_cpu) {
  ToyRun toy;
  toy.accumulation = 2;
  toy.options.optimizer = train::Sgd{0.9};
  toy.options.clip_grad = 1;
  expect_cpu_bits_in_every_mode({.kind = WorldKind::shm, .size = 2}, toy);
}

TEST_F(OnGpu, one_rank_alone_gives_the_bits_of_the_cpu) {
  expect_cpu_bits_in_every_mode({.kind = WorldKind::threads, .size = 1}, {});
}

TEST_F(OnGpu, names_the_rank_and_parameter_of_a_gradient_that_is_not_finite) {
  for (const bool check : {false, true}) {
    ToyRun toy;
    toy.options.check_for_nan = check;
    toy.change = [](int step, int rank, int, ToyModel::Pass& pass) {
      if (step == 2 && rank == 1) pass.planted = std::numeric_limits<float>::infinity();
    };
    toy.look = [check](int step, train::DataParallel&, const train::StepReport& report) {
      const auto bad = check ? train::Outcome::rejected : train::Outcome::skipped;
      EXPECT_EQ(report.outcome, step == 2 ? bad : train::Outcome::updated);
      if (step != 2) return;
      ASSERT_EQ(report.faults.size(), 1U);
      EXPECT_EQ(report.faults[0].parameter, "layers.1.weight");
      EXPECT_EQ(report.faults[0].rank, check ? 1 : -1);
    };
    expect_cpu_bits_in_every_mode({.kind = WorldKind::threads, .size = 2}, toy);
  }
}

TEST_F(OnGpu, times_of_a_step_are_the_devices_and_in_order) {
  run({.kind = WorldKind::threads, .size = 2}, [](Context& here) {
    const GpuStream stream;
    ToyRun toy;
    toy.options = five_modes()[4].options;
    toy.options.bucket_bytes = 2000;
    stream.use(toy.options);
    std::int64_t last_end = 0;
    toy.look = [&](int step, train::DataParallel& layer, const train::StepReport&) {
      const train::StepTimes times = layer.take_times();
      EXPECT_GT(times.begin, last_end - 1'000'000) << step;
      EXPECT_GT(times.end, times.begin);
      EXPECT_GT(times.forward, 0);
      EXPECT_GT(times.backward, 0);
      EXPECT_FALSE(times.collectives.empty());
      for (const train::CollectiveTimes& one : times.collectives) {
        EXPECT_LE(one.joined, one.done) << to_string(one.collective) << one.bucket;
        EXPECT_LE(one.wait_begin, one.wait_end);
        EXPECT_GT(one.wait_end, 0);
        EXPECT_LE(one.done, one.wait_end) << "what waited found it done";
      }
      last_end = times.end;
    };
    const auto outcome = train_toy(here.group, toy);
    ASSERT_TRUE(outcome.ok()) << outcome.status().to_string();
  });
}

TEST_F(OnGpu, a_checkpoint_goes_on_on_the_cpu_and_back) {
  const Folder folder;
  run({.kind = WorldKind::threads, .size = 2}, [&](Context& here) {
    const GpuStream stream;
    Plan plan{.ranks = 2, .mode = 4, .dtype = Dtype::bf16};
    Training expected(here.group, plan);
    expected.advance(0, 4);
    std::unique_ptr<Training> before;
    const std::function on_stream = [&](train::DataParallelOptions& options) {
      stream.use(options);
    };
    int step = 0;
    for (const bool on_gpu : {true, false, true, false}) {
      plan.place = on_gpu ? on_stream : nullptr;
      auto training = std::make_unique<Training>(here.group, plan);
      if (before) {
        const auto loaded = train::load_checkpoint(training->layer(), folder.path());
        ASSERT_TRUE(loaded.ok()) << loaded.status().to_string();
        EXPECT_EQ(training->hash(), before->hash());
      }
      training->advance(step, step + 1);
      train::CheckpointInfo info;
      info.iteration = ++step;
      const Status saved = train::save_checkpoint(training->layer(), folder.path(), info);
      ASSERT_TRUE(saved.ok()) << saved.to_string();
      before = std::move(training);
    }
    EXPECT_EQ(before->hash(), expected.hash());
  });
}

TEST_F(OnGpu, goes_on_in_a_smaller_group_with_the_state_of_all) {
  run({.kind = WorldKind::threads, .size = 3}, [](Context& here) {
    const GpuStream stream;
    auto smaller = here.group->split(here.rank < 2 ? 0 : -1, here.rank);
    ASSERT_TRUE(smaller.ok()) << smaller.status().to_string();
    std::vector<std::string> hashes;
    for (const bool on_gpu : {false, true}) {
      Plan plan{.ranks = 3, .mode = 4, .buddy = true};
      if (on_gpu) plan.place = [&](auto& options) { stream.use(options); };
      Training training(here.group, plan);
      training.advance(0, 3);
      meet(here, on_gpu ? "on the GPU" : "on the CPU");
      if (here.rank == 2) continue;
      const auto step = training.recover(*smaller);
      ASSERT_TRUE(step.ok()) << step.status().to_string();
      EXPECT_EQ(*step, 3);
      training.advance(3, 5);
      hashes.push_back(training.hash());
    }
    if (here.rank < 2) {
      EXPECT_EQ(hashes[0], hashes[1]);
    }
  });
}

// A rank dies while the others' streams wait for it: they are let go, and told who it was.
TEST_F(OnGpu, survivors_of_a_lost_rank_are_told_and_go_on) {
  World world{.kind = WorldKind::shm, .size = 3};
  world.doomed = {2};
  world.tune = [](Config& config) { config.timeout = std::chrono::seconds(10); };
  run(world, [](Context& here) {
    const GpuStream stream;
    Plan plan{.ranks = 3, .mode = 4, .buddy = true};
    plan.place = [&](auto& options) { stream.use(options); };
    Training training(here.group, plan);
    training.advance(0, 3);
    meet(here);
    if (here.rank == 2) ::raise(SIGKILL);
    training.compute(3);
    const Status status = training.update();
    EXPECT_FALSE(status.ok());
    EXPECT_EQ(status.code(), Code::peer_lost) << status.to_string();
    auto survivors = here.group->shrink();
    ASSERT_TRUE(survivors.ok()) << survivors.status().to_string();
    EXPECT_EQ((*survivors)->size(), 2);
    const auto step = training.recover(*survivors);
    ASSERT_TRUE(step.ok()) << step.status().to_string();
    EXPECT_THAT(*step, testing::AnyOf(2, 3));
    training.advance(static_cast<int>(*step), 5);
    const Status alike = training.layer().check_weights();
    EXPECT_TRUE(alike.ok()) << alike.to_string();
  });
}

TEST_F(OnGpu, says_that_there_is_no_driver) {
  if (on_real_gpu()) GTEST_SKIP() << "there is one";
  run({.kind = WorldKind::threads, .size = 2}, [](Context& here) {
    ToyRun toy;
    toy.options.device = Device::cuda;
    const auto outcome = train_toy(here.group, toy);
    EXPECT_EQ(outcome.status().code(), Code::unsupported) << outcome.status().to_string();
  });
}

}  // namespace
}  // namespace tutti::test
