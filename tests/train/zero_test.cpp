// Ranks that keep shards of gradients and weights train to the bits of those that keep them whole, and never
// have all of them.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <malloc.h>
#include <unistd.h>

#include <fstream>
#include <set>

#include "support/worlds.hpp"
#include "train/cut_model.hpp"
#include "train/toy_run.hpp"

namespace tutti::test {
namespace {

using testing::AllOf;
using testing::HasSubstr;

ToyRun zero_run(const Mode& mode, const ToyRun& given) {
  ToyRun toy = given;
  toy.options = mode.options;
  toy.options.clip_grad = given.options.clip_grad;
  toy.options.optimizer = given.options.optimizer;
  toy.options.check_for_nan = given.options.check_for_nan;
  toy.options.grad_reduce_in_bf16 = given.options.grad_reduce_in_bf16;
  toy.options.bucket_bytes = 2000;
  return toy;
}

// Of every mode that keeps less, against `reference` on the same ranks.
void expect_bits_of(const Mode& reference, const ToyRun& toy, const World& world) {
  run(world, [&](Context& here) {
    const auto expected = train_toy(here.group, zero_run(reference, toy));
    ASSERT_TRUE(expected.ok()) << expected.status().to_string();
    for (const Mode& mode : zero_modes()) {
      const auto outcome = train_toy(here.group, zero_run(mode, toy));
      ASSERT_TRUE(outcome.ok()) << mode.name << ": " << outcome.status().to_string();
      EXPECT_EQ(outcome->hash, expected->hash) << mode.name;
      EXPECT_EQ(outcome->norms, expected->norms) << mode.name;
      EXPECT_EQ(outcome->losses, expected->losses) << mode.name;
      EXPECT_EQ(outcome->evaluated, expected->evaluated) << mode.name;
    }
  });
}

World threads(int size) { return {.kind = WorldKind::threads, .size = size}; }

TEST(Zero, with_one_micro_batch_has_the_bits_of_the_first_stage) {
  for (const Dtype dtype : {Dtype::f32, Dtype::bf16})
    for (const int size : {1, 2, 3, 4}) {
      if (reduced() && size != 3) continue;
      ToyRun toy;
      toy.model.dtype = dtype;
      toy.options.clip_grad = 0.5;
      toy.evaluate_every = 2;
      expect_bits_of(five_modes()[4], toy, threads(size));
    }
}

TEST(Zero, has_the_same_bits_in_processes_over_sockets_and_on_two_hosts) {
  for (const WorldKind kind : {WorldKind::shm, WorldKind::tcp, WorldKind::mixed}) {
    if (reduced() && kind != WorldKind::shm) continue;
    ToyRun toy;
    toy.options.optimizer = train::Sgd{0.9};
    toy.accumulation = 2;
    expect_bits_of(every_micro_batch(), toy, {.kind = kind, .size = 2});
  }
}

TEST(Zero, with_several_micro_batches_has_the_bits_of_a_first_stage_that_reduces_each_of_them) {
  for (const int accumulation : {1, 2, 5}) {
    ToyRun toy;
    toy.accumulation = accumulation;
    toy.model.dtype = accumulation == 2 ? Dtype::bf16 : Dtype::f32;
    toy.options.clip_grad = 0.5;
    expect_bits_of(every_micro_batch(), toy, threads(3));
  }
}

TEST(Zero, has_the_bits_of_the_first_stage_where_gradients_cross_in_bf16_too) {
  ToyRun toy;
  toy.accumulation = 2;
  toy.model.dtype = Dtype::f16;
  toy.options.grad_reduce_in_bf16 = true;
  expect_bits_of(every_micro_batch(), toy, threads(3));
}

// … which is what it is with one, and not with several.
TEST(Zero, of_the_first_stage_differs_in_when_it_reduces_only) {
  run(threads(3), [](Context& here) {
    for (const int accumulation : {1, 3}) {
      ToyRun toy;
      toy.accumulation = accumulation;
      const auto once = train_toy(here.group, zero_run(five_modes()[3], toy));
      const auto always = train_toy(here.group, zero_run(every_micro_batch(), toy));
      ASSERT_TRUE(once.ok() && always.ok()) << always.status().to_string();
      EXPECT_EQ(once->hash == always->hash, accumulation == 1);
      for (std::size_t step = 0; step < once->losses.size(); ++step)
        EXPECT_NEAR(once->losses[step], always->losses[step], 1e-4);
    }
  });
}

TEST(Zero, has_the_bits_where_parameters_are_used_in_turn_by_one_rank_or_not_at_all) {
  for (const int kind : {0, 1, 2}) {
    ToyRun toy;
    toy.steps = 6;
    toy.accumulation = 2;
    toy.change = [kind](int step, int rank, int micro, ToyModel::Pass& pass) {
      pass.with_extra = kind == 0   ? step % 2 == 0
                        : kind == 1 ? rank == 1 && micro == 1
                                    : step == 3 && rank == 0;
    };
    expect_bits_of(every_micro_batch(), toy, threads(3));
  }
}

TEST(Zero, has_the_bits_of_gradients_that_come_in_two_parts_from_the_first_backward_on) {
  ToyRun toy;
  toy.change = [](int step, int rank, int, ToyModel::Pass& pass) {
    pass.parts = step == 0 || rank == 1 ? 2 : 1;
  };
  expect_bits_of(five_modes()[4], toy, threads(2));
}

TEST(Zero, names_a_gradient_that_is_not_finite_and_goes_on) {
  for (const bool check : {false, true}) {
    ToyRun toy;
    toy.accumulation = 2;
    toy.options.check_for_nan = check;
    toy.change = [](int step, int rank, int micro, ToyModel::Pass& pass) {
      if (step == 1 && rank == 1 && micro == 0)
        pass.planted = std::numeric_limits<float>::infinity();
    };
    toy.look = [check](int step, train::DataParallel&, const train::StepReport& report) {
      const auto bad = check ? train::Outcome::rejected : train::Outcome::skipped;
      EXPECT_EQ(report.outcome, step == 1 ? bad : train::Outcome::updated);
      if (step != 1) return;
      ASSERT_EQ(report.faults.size(), 1U);
      EXPECT_EQ(report.faults[0].parameter, "layers.1.weight");
      EXPECT_EQ(report.faults[0].rank, check ? 1 : -1);
    };
    expect_bits_of(every_micro_batch(), toy, threads(3));
  }
}

TEST(Zero, cuts_a_model_over_ranks_with_the_same_bits) {
  const auto train = [](Context& here, const Mode& mode, const CutLayout& layout) {
    CutOptions options{.layout = layout};
    options.train = mode.options;
    options.train.bucket_bytes = 500;
    options.train.clip_grad = 0.01;
    CutModel model(here.group, options);
    EXPECT_TRUE(model.status().ok()) << model.status().to_string();
    std::string text;
    for (int step = 0; step < 2; ++step) {
      const auto report = model.step(step, {.micro_batches = 2});
      EXPECT_TRUE(report.ok()) << report.status().to_string();
      if (report.ok()) text += std::to_string(report->grad_norm) + " ";
    }
    return text + *model.layer().weight_hash();
  };
  for (const CutLayout layout : {CutLayout{2, 1, 1}, CutLayout{2, 2, 1}, CutLayout{2, 1, 2}})
    run(threads(layout.ranks()), [&](Context& here) {
      const std::string expected = train(here, every_micro_batch(), layout);
      for (const Mode& mode : zero_modes())
        EXPECT_EQ(train(here, mode, layout), expected) << mode.name << ", " << to_string(layout);
    });
}

// ---- what there is at once

TEST(Zero, never_has_all_gradients_or_weights_at_once_not_even_in_the_first_micro_batch) {
  run(threads(2), [](Context& here) {
    for (const Mode& mode : zero_modes()) {
      ToyRun toy;
      toy.model.layers = 12;
      toy.options = mode.options;
      toy.options.bucket_bytes = 2400;  // one layer
      toy.accumulation = 2;
      train::DataParallel* layer = nullptr;
      std::size_t whole = 0, most = 0;
      toy.begin = [&](train::DataParallel& made) {
        layer = &made;
        for (const train::Parameter& parameter : made.parameters())
          if (!parameter.frozen) whole += parameter.count() * sizeof(float);
        const train::MemoryUse use = made.memory();
        EXPECT_LT(use.gradients, whole * 3 / 4) << "a shard, and padding";
      };
      toy.change = [&](int, int, int, ToyModel::Pass& pass) {
        pass.after_gradient = [&](const std::string&) {
          most = std::max(most, layer->memory().pool);
        };
      };
      const auto outcome = train_toy(here.group, toy);
      ASSERT_TRUE(outcome.ok()) << outcome.status().to_string();
      EXPECT_GT(most, 0U);
      // With the third stage of weights, too.
      const std::size_t all = mode.options.zero == 3 ? 2 * whole : whole;
      EXPECT_LT(most, all * 2 / 5) << mode.name << " of " << all;
    }
  });
}

// A stack of matrices whose gradients are told without being computed.
class Stack {
 public:
  static constexpr std::size_t kMatrices = 32;
  static constexpr std::size_t kElements = 1 << 18;

  Stack(std::shared_ptr<Group> group, train::DataParallelOptions options, Dtype dtype) {
    std::vector<float> values(kElements, 0.25F);
    std::vector<train::Parameter> parameters(kMatrices);
    for (std::size_t i = 0; i < kMatrices; ++i) {
      parameters[i].name = "matrix." + std::to_string(i);
      parameters[i].shape = {static_cast<std::int64_t>(kElements)};
      parameters[i].value = {values.data(), kElements, dtype};
    }
    options.bucket_bytes = kElements * sizeof(float);
    auto layer = train::DataParallel::create({group, nullptr}, std::move(parameters), options);
    EXPECT_TRUE(layer.ok()) << layer.status().to_string();
    layer_ = *std::move(layer);
  }

  void step() {
    ASSERT_TRUE(layer_->begin_micro_batch(true).ok());
    for (std::size_t i = 0; i < kMatrices; ++i) {
      ASSERT_TRUE(layer_->need(i).ok());
      layer_->done(i);
    }
    layer_->begin_backward();
    for (std::size_t i = kMatrices; i-- > 0;) {
      ASSERT_TRUE(layer_->need(i).ok());
      layer_->done(i);
      auto* gradient = static_cast<float*>(layer_->gradient(i).data);
      std::fill(gradient, gradient + kElements, 0.5F);
      layer_->ready(i);
    }
    ASSERT_TRUE(layer_->end_backward().ok());
    ASSERT_TRUE(layer_->step({.lr = 0.01, .tokens = 5}).ok());
  }
  train::DataParallel& layer() { return *layer_; }

 private:
  std::unique_ptr<train::DataParallel> layer_;
};

// What the process has that nobody else can have given it.
double resident_bytes() {
  std::ifstream file("/proc/self/statm");
  double size = 0, resident = 0;
  file >> size >> resident;
  return resident * static_cast<double>(::sysconf(_SC_PAGESIZE));
}

// In processes without shared memory: what a rank has is its own. Anything that was forgotten in
// MemoryUse would show.
TEST(Zero, takes_the_bytes_for_each_parameter_that_it_should_and_the_pool) {
  if (reduced()) GTEST_SKIP() << "a sanitizer has memory of its own";
  for (const Dtype dtype : {Dtype::f32, Dtype::bf16})
    for (const int zero : {1, 2, 3})
      run({.kind = WorldKind::tcp, .size = 2}, [&](Context& here) {
        const double d = here.size;
        const double w = static_cast<double>(size_of(dtype));
        const double moments = 8 + (dtype == Dtype::bf16 ? 4 : 0);
        const double sent = dtype == Dtype::bf16 ? 2 : 0;  // beside the gradients themselves
        const double bytes = (zero >= 3 ? w / d : w) + (zero >= 2 ? 4 / d : 4 + sent) + moments / d;
        train::DataParallelOptions options;
        options.zero = zero;
        options.overlap_grad_reduce = true;
        options.prefetch_units = 1;
        options.grad_reduce_in_bf16 = sent > 0;
        { Stack(here.group, options, dtype).step(); }  // what the group keeps for itself
        ::malloc_trim(0);
        const double before = resident_bytes();
        Stack stack(here.group, options, dtype);
        for (int step = 0; step < 2; ++step) stack.step();
        ::malloc_trim(0);
        const train::MemoryUse use = stack.layer().memory();
        const double parameters = Stack::kMatrices * Stack::kElements;
        const auto kept = static_cast<double>(use.weights + use.gradients + use.optimizer);
        EXPECT_NEAR(kept / parameters, bytes, 0.05 * bytes) << "zero " << zero;
        EXPECT_NEAR((resident_bytes() - before) / (kept + static_cast<double>(use.pool)), 1, 0.05)
            << "zero " << zero << ", pool " << use.pool;
        // Of gradients one that fills, one that was just launched and one that is being reduced; of weights
        // one in use, and one that is gathered.
        const double in_slots = (zero >= 2 ? 3 * (4 + sent) : 0) + (zero >= 3 ? 2 * w : 0);
        EXPECT_LE(static_cast<double>(use.pool), in_slots * (Stack::kElements + 1024));
        meet(here);
      });
}

TEST(Zero, has_gradients_in_backward_alone) {
  run(threads(2), [](Context& here) {
    ToyModel toy({});
    train::DataParallelOptions options = zero_modes()[0].options;
    options.groups = {{}, {}};
    auto layer = train::DataParallel::create({here.group, nullptr}, toy.parameters(), options);
    ASSERT_TRUE(layer.ok()) << layer.status().to_string();
    toy.attach(**layer);
    EXPECT_EQ((*layer)->gradient(0).data, nullptr);
    ASSERT_TRUE(toy.run(toy_sequence(here.rank), {}).ok());
    EXPECT_EQ((*layer)->gradient(0).data, nullptr);
    ASSERT_TRUE((*layer)->step({.lr = 0.01, .tokens = 5}).ok());
  });
}

// ---- what is told out of order

TEST(Zero, discards_a_step_from_wherever_in_a_micro_batch_each_rank_is) {
  run(threads(3), [](Context& here) {
    for (Mode mode : zero_modes()) {
      std::vector<std::string> hashes;
      for (const bool discards : {false, true}) {
        ToyModel toy({});
        mode.options.groups = {{}, {}};
        mode.options.bucket_bytes = 2000;
        auto layer =
            train::DataParallel::create({here.group, nullptr}, toy.parameters(), mode.options);
        ASSERT_TRUE(layer.ok()) << layer.status().to_string();
        toy.attach(**layer);
        for (int step = 0; step < 3; ++step) {
          if (discards && step > 0) {
            ASSERT_TRUE(toy.run(toy_sequence(99), {.last = false}).ok());
            // Forward, backward, and its end.
            if (here.rank == 2) {
              ASSERT_TRUE(toy.run(toy_sequence(98), {}).ok());
            } else {
              ASSERT_TRUE((*layer)->begin_micro_batch(true).ok());
              if (here.rank == 1) (*layer)->begin_backward();
            }
            const Status status = (*layer)->discard_gradients();
            ASSERT_TRUE(status.ok()) << status.to_string();
          }
          ASSERT_TRUE(toy.run(toy_sequence(here.rank), {}).ok());
          ASSERT_TRUE((*layer)->step({.lr = 0.01, .tokens = 5}).ok());
        }
        hashes.push_back(*(*layer)->weight_hash());
      }
      EXPECT_EQ(hashes[0], hashes[1]) << mode.name;
    }
  });
}

TEST(Zero, names_a_gradient_that_comes_once_more_than_was_learned) {
  run(threads(2), [](Context& here) {
    ToyRun toy;
    toy.options = zero_modes()[0].options;
    toy.options.bucket_bytes = 2000;
    toy.change = [](int step, int, int, ToyModel::Pass& pass) {
      if (step == 2) pass.told_again = "scale";
    };
    const auto outcome = train_toy(here.group, toy);
    EXPECT_EQ(outcome.status().code(), Code::invalid_argument) << outcome.status().to_string();
    EXPECT_THAT(outcome.status().message(), AllOf(HasSubstr("'scale'"), HasSubstr("2 times")));
  });
}

// ---- the third stage

ToyRun third_stage() {
  ToyRun toy;
  toy.options = zero_modes()[2].options;
  toy.options.bucket_bytes = 2000;
  return toy;
}

TEST(Zero, gathers_units_whole_whatever_their_size) {
  run(threads(2), [](Context& here) {
    std::vector<std::string> hashes;
    for (const bool in_units : {false, true}) {
      ToyModel toy({.layers = 4});
      train::DataParallelOptions options = third_stage().options;
      options.groups = {{}, {}};
      std::vector<train::Parameter> parameters = toy.parameters();
      if (in_units)
        for (train::Parameter& one : parameters)
          if (one.name.starts_with("layers.")) one.unit = one.name[7] - '0';
      auto layer = train::DataParallel::create({here.group, nullptr}, parameters, options);
      ASSERT_TRUE(layer.ok()) << layer.status().to_string();
      toy.attach(**layer);
      for (int step = 0; step < 3; ++step) {
        ASSERT_TRUE(toy.run(toy_sequence(step * 2 + here.rank), {}).ok());
        ASSERT_TRUE((*layer)->step({.lr = 0.01, .tokens = 5}).ok());
      }
      if (in_units) {
        EXPECT_THAT((*layer)->describe(), HasSubstr("layers.2.bias … layers.2.weight"));
      }
      hashes.push_back(*(*layer)->weight_hash());
    }
    EXPECT_EQ(hashes[0], hashes[1]);
  });
}

TEST(Zero, lists_the_same_collectives_on_all_ranks_with_the_waits_of_each_unit) {
  run(threads(2), [](Context& here) {
    ToyRun toy = third_stage();
    toy.accumulation = 2;
    auto meter = train::OverlapMeter::create(*here.group);
    ASSERT_TRUE(meter.ok());
    toy.look = [&](int step, train::DataParallel& layer, const train::StepReport&) {
      const train::StepTimes times = layer.take_times();
      std::set<int> gathered;
      for (const train::CollectiveTimes& one : times.collectives)
        if (one.collective == Collective::all_gather) gathered.insert(one.bucket);
      EXPECT_GT(gathered.size(), 3U);
      const auto exposed = train::exposed_by_bucket(times);
      EXPECT_EQ(exposed.size(), gathered.size());
      ASSERT_TRUE((*meter)->publish(step, times).ok());
      const auto overlap = (*meter)->take(true);
      EXPECT_TRUE(overlap.ok()) << overlap.status().to_string();
    };
    const auto outcome = train_toy(here.group, toy);
    ASSERT_TRUE(outcome.ok()) << outcome.status().to_string();
  });
}

TEST(Zero, names_what_ranks_need_where_they_differ_in_the_first_micro_batch) {
  run(threads(2), [](Context& here) {
    ToyRun toy = third_stage();
    toy.change = [](int, int rank, int, ToyModel::Pass& pass) { pass.with_extra = rank == 0; };
    const auto outcome = train_toy(here.group, toy);
    EXPECT_EQ(outcome.status().code(), Code::mismatch) << outcome.status().to_string();
    EXPECT_THAT(outcome.status().message(),
                AllOf(HasSubstr("'extra'"), HasSubstr("'embedding.weight'")));
  });
}

TEST(Zero, names_a_weight_that_is_needed_once_more_than_in_the_first_micro_batch) {
  run(threads(2), [](Context& here) {
    ToyModel toy({});
    train::DataParallelOptions options = third_stage().options;
    options.groups = {{}, {}};
    auto layer = train::DataParallel::create({here.group, nullptr}, toy.parameters(), options);
    ASSERT_TRUE(layer.ok()) << layer.status().to_string();
    toy.attach(**layer);
    ASSERT_TRUE(toy.run(toy_sequence(here.rank), {}).ok());
    ASSERT_TRUE((*layer)->step({.lr = 0.01, .tokens = 5}).ok());
    ASSERT_TRUE((*layer)->begin_micro_batch(true).ok());
    const std::size_t scale = toy.index_of("scale");
    Status status;
    for (int i = 0; i < 9 && status.ok(); ++i) {
      status = (*layer)->need(scale);
      (*layer)->done(scale);
    }
    EXPECT_EQ(status.code(), Code::invalid_argument) << status.to_string();
    EXPECT_THAT(status.message(), HasSubstr("'scale'"));
  });
}

TEST(Zero, names_a_weight_that_was_read_without_its_gate) {
  run(threads(2), [](Context& here) {
    ToyRun toy = third_stage();
    toy.change = [](int step, int, int, ToyModel::Pass& pass) {
      if (step == 1) pass.ungated = "layers.1.weight";
    };
    const auto outcome = train_toy(here.group, toy);
    EXPECT_EQ(outcome.status().code(), Code::invalid_argument) << outcome.status().to_string();
    EXPECT_THAT(outcome.status().message(), HasSubstr("'layers.1.weight'"));
  });
}

TEST(Zero, of_the_third_stage_refuses_another_group_by_name) {
  run(threads(2), [](Context& here) {
    const ToyModel toy({});
    train::DataParallelOptions options = third_stage().options;
    options.groups = {{}, {}};
    auto layer = train::DataParallel::create({here.group, nullptr}, toy.parameters(), options);
    ASSERT_TRUE(layer.ok());
    const auto step = (*layer)->recover({here.group, nullptr});
    EXPECT_EQ(step.status().code(), Code::unsupported);
    EXPECT_THAT(step.status().message(), HasSubstr("zero = 3"));
  });
}

TEST(Zero, options_that_contradict_each_other_are_refused_by_name) {
  run(threads(1), [](Context& here) {
    const ToyModel toy({});
    const auto refused = [&](const std::function<void(train::DataParallelOptions&)>& change,
                             const testing::Matcher<std::string>& words) {
      train::DataParallelOptions options = zero_modes()[0].options;
      options.groups = {{}, {}};
      change(options);
      const auto layer =
          train::DataParallel::create({here.group, nullptr}, toy.parameters(), options);
      EXPECT_EQ(layer.status().code(), Code::invalid_argument) << layer.status().to_string();
      EXPECT_THAT(layer.status().message(), words);
    };
    refused([](auto& options) { options.zero = 7; }, HasSubstr("zero is 7"));
    refused([](auto& options) { options.use_distributed_optimizer = true; },
            AllOf(HasSubstr("use_distributed_optimizer"), HasSubstr("zero is 2")));
    refused(
        [](auto& options) {
          options.use_distributed_optimizer = true;
          options.zero = 0;
        },
        HasSubstr("zero is 0"));
    refused([](auto& options) { options.overlap_grad_reduce = false; },
            HasSubstr("needs overlap_grad_reduce"));
    refused([](auto& options) { options.pipelined = true; },
            AllOf(HasSubstr("zero = 2"), HasSubstr("pipelined")));
    refused(
        [](auto& options) {
          options.zero = 3;
          options.buddy = true;
        },
        HasSubstr("buddy"));
    refused([](auto& options) { options.prefetch_units = -1; }, HasSubstr("prefetch_units"));
    refused(
        [](auto& options) {
          options.zero = 0;
          options.reduce_every_micro_batch = true;
        },
        HasSubstr("reduce_every_micro_batch"));
  });
}

}  // namespace
}  // namespace tutti::test
