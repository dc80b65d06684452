// What a step promises beside its bits: gates, faults by name, unused parameters, failures.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <unistd.h>

#include <cmath>
#include <thread>

#include "support/worlds.hpp"
#include "trace/run.hpp"
#include "train/folder.hpp"
#include "train/kernels.hpp"
#include "train/toy_run.hpp"

namespace tutti::test {
namespace {

using testing::AnyOf;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

ToyRun all_overlaps() {
  ToyRun toy;
  toy.options = five_modes()[4].options;
  toy.options.bucket_bytes = 2000;
  return toy;
}

TEST(Step, learns_something_and_every_replica_ends_alike) {
  run(World{.kind = WorldKind::threads, .size = 3}, [](Context& here) {
    ToyRun toy = all_overlaps();
    toy.steps = 40;
    toy.accumulation = 2;
    toy.look = [](int, train::DataParallel& layer, const train::StepReport&) {
      EXPECT_TRUE(layer.check_weights().ok());
    };
    const auto outcome = train_toy(here.group, toy);
    ASSERT_TRUE(outcome.ok()) << outcome.status().to_string();
    const auto& losses = outcome->losses;
    ASSERT_EQ(losses.size(), 40u);
    EXPECT_LT(losses[38] + losses[39], 0.8 * (losses[0] + losses[1]));
  });
}

// Of SGD's first step with a rate of 1 the weights are the sum of the gradients: in rank order, in f32, of what each
// rank has rounded once.
TEST(Step, gradients_that_cross_in_bf16_are_rounded_once_and_summed_in_f32) {
  constexpr std::size_t kCount = 5000;
  run(World{.kind = WorldKind::threads, .size = 3}, [&](Context& here) {
    const auto gradient_of = [](int rank, std::size_t i) {
      return std::sin(static_cast<float>(7 * i + 1)) * (rank == 1 ? 1e3F : 1e-3F * float(rank + 1));
    };
    for (const Mode& mode : five_modes()) {
      std::vector<float> weights(kCount, 0);
      train::Parameter parameter;
      parameter.name = "w";
      parameter.shape = {kCount};
      parameter.value = Buffer::of(weights);
      auto options = mode.options;
      options.grad_reduce_in_bf16 = true;
      options.optimizer = train::Sgd{0};
      auto layer = train::DataParallel::create({here.group, here.group}, {parameter}, options);
      ASSERT_TRUE(layer.ok()) << layer.status().to_string();
      ASSERT_TRUE((*layer)->begin_micro_batch(true).ok());
      ASSERT_TRUE((*layer)->need(0).ok());
      (*layer)->begin_backward();
      auto* gradient = static_cast<float*>((*layer)->gradient(0).data);
      for (std::size_t i = 0; i < kCount; ++i) gradient[i] = gradient_of(here.rank, i);
      (*layer)->ready(0);
      ASSERT_TRUE((*layer)->end_backward().ok());
      ASSERT_TRUE((*layer)->step({.lr = 1, .tokens = here.rank == 0 ? 1 : 0}).ok());
      ASSERT_TRUE((*layer)->parameters_ready().ok());
      const auto* updated = static_cast<const float*>((*layer)->parameter(0).data);
      for (std::size_t i = 0; i < kCount; ++i) {
        float sum = 0;
        for (int rank = 0; rank < 3; ++rank) {
          const float given = gradient_of(rank, i);
          std::uint16_t sent = 0;
          float arrived = 0;
          train::reference::narrow(Dtype::bf16, &given, &sent, 1);
          train::reference::widen(Dtype::bf16, &sent, &arrived, 1);
          sum = rank == 0 ? arrived : sum + arrived;
        }
        ASSERT_EQ(updated[i], 0 - sum) << mode.name << ", " << i;
      }
      const auto times = (*layer)->take_times();
      const auto sent =
          std::find_if(times.collectives.begin(), times.collectives.end(),
                       [](const train::CollectiveTimes& call) {
                         return call.bucket >= 0 && call.collective != Collective::all_gather;
                       });
      ASSERT_NE(sent, times.collectives.end());
      EXPECT_EQ(sent->bytes, 2 * 5376U) << "with padding to 3 · 128 elements";
    }
  });
}

TEST(Step, weights_change_with_each_step_and_with_the_data) {
  run(World{.kind = WorldKind::threads, .size = 2}, [](Context& here) {
    std::vector<std::string> hashes;
    ToyRun toy = all_overlaps();
    toy.look = [&](int, train::DataParallel& layer, const train::StepReport&) {
      hashes.push_back(*layer.weight_hash());
    };
    ASSERT_TRUE(train_toy(here.group, toy).ok());
    std::sort(hashes.begin(), hashes.end());
    EXPECT_EQ(std::unique(hashes.begin(), hashes.end()), hashes.end());
  });
}

// The toy's groups have a weight decay of 0 and 0.1.
TEST(Step, groups_of_a_step_stand_in_place_of_the_layers) {
  run(World{.kind = WorldKind::threads, .size = 2}, [](Context& here) {
    const auto hash_of = [&](std::vector<train::GroupStep> groups) {
      ToyRun toy = all_overlaps();
      toy.tell = [&](train::StepInput& input) {
        input.groups = groups;
        if (!groups.empty()) input.lr = 100;  // not looked at
      };
      const auto outcome = train_toy(here.group, toy);
      return outcome.ok() ? outcome->hash : outcome.status().to_string();
    };
    const train::Optimizer same = train::AdamW{};
    const std::string usual = hash_of({});
    EXPECT_EQ(hash_of({{0.02, 0.0, same}, {0.02, 0.1, same}}), usual);
    const train::GroupStep second[] = {
        {0.01, 0.1, same}, {0.02, 0.2, same}, {0.02, 0.1, train::AdamW{.beta1 = 0.8}}};
    for (const train::GroupStep& other : second)
      EXPECT_NE(hash_of({{0.02, 0.0, same}, other}), usual);
    EXPECT_THAT(hash_of({{0.02, 0.0, same}}), HasSubstr("has 1 groups, and the layer has 2"));
    EXPECT_THAT(hash_of({{0.02, 0.0, same}, {0.02, 0.1, train::Sgd{}}}),
                HasSubstr("another kind of optimizer"));
  });
}

TEST(Step, a_loss_scale_divides_gradients_and_their_norm) {
  run(World{.kind = WorldKind::threads, .size = 2}, [](Context& here) {
    const auto train = [&](std::int64_t more_tokens, double scale) {
      ToyRun toy = all_overlaps();
      toy.options.clip_grad = 0.01;
      toy.tell = [=](train::StepInput& input) {
        input.tokens *= more_tokens;
        input.loss_scale = scale;
      };
      return train_toy(here.group, toy);
    };
    const auto by_tokens = train(1024, 1), by_scale = train(1, 1024);
    ASSERT_TRUE(by_tokens.ok() && by_scale.ok());
    EXPECT_EQ(by_tokens->hash, by_scale->hash);
    EXPECT_EQ(by_tokens->norms, by_scale->norms);
    EXPECT_THAT(train(1, 0).status().to_string(), HasSubstr("loss_scale must be above 0"));
  });
}

TEST(Step, names_rank_and_parameter_of_a_nan_on_every_rank_and_changes_nothing) {
  run(World{.kind = WorldKind::threads, .size = 3}, [](Context& here) {
    for (const Mode& mode : five_modes()) {
      ToyRun toy;
      toy.options = mode.options;
      toy.options.bucket_bytes = 2000;
      toy.options.check_for_nan = true;
      toy.change = [](int step, int rank, int, ToyModel::Pass& pass) {
        if (step == 1 && rank == 2) pass.planted = std::nanf("");
      };
      std::string before;
      toy.look = [&](int step, train::DataParallel& layer, const train::StepReport& report) {
        if (step == 1) {
          EXPECT_EQ(report.outcome, train::Outcome::rejected);
          ASSERT_EQ(report.faults.size(), 1u);
          EXPECT_EQ(report.faults[0].rank, 2);
          EXPECT_EQ(report.faults[0].parameter, "layers.1.weight");
          EXPECT_GE(report.faults[0].bucket, 0);
          EXPECT_EQ(*layer.weight_hash(), before);
        } else {
          EXPECT_EQ(report.outcome, train::Outcome::updated);
        }
        before = *layer.weight_hash();
      };
      EXPECT_TRUE(train_toy(here.group, toy).ok()) << mode.name;
    }
  });
}

TEST(Step, a_rejected_step_that_is_computed_again_ends_as_if_nothing_had_been) {
  run(World{.kind = WorldKind::threads, .size = 2}, [](Context& here) {
    std::vector<std::string> hashes;
    for (bool disturbed : {false, true}) {
      ToyModel model({});
      auto options = all_overlaps().options;
      options.check_for_nan = true;
      options.groups = {{}, {}};
      auto layer = train::DataParallel::create({here.group, nullptr}, model.parameters(), options);
      ASSERT_TRUE(layer.ok()) << layer.status().to_string();
      model.attach(**layer);
      for (int step = 0; step < 3; ++step) {
        bool plant = disturbed && step == 1;
        while (true) {
          ToyModel::Pass pass;
          pass.planted = plant && here.rank == 1 ? std::nanf("") : 0.0F;
          ASSERT_TRUE(model.run(toy_sequence(step * 2 + here.rank), pass).ok());
          auto report = (*layer)->step({.lr = 0.01, .tokens = 5});
          ASSERT_TRUE(report.ok());
          EXPECT_EQ(report->outcome == train::Outcome::rejected, plant);
          if (!plant) break;
          plant = false;
        }
      }
      hashes.push_back(*(*layer)->weight_hash());
    }
    EXPECT_EQ(hashes[0], hashes[1]);
  });
}

TEST(Step, a_backward_that_is_discarded_leaves_no_trace) {
  run(World{.kind = WorldKind::threads, .size = 2}, [](Context& here) {
    std::vector<std::string> hashes;
    for (bool disturbed : {false, true}) {
      ToyModel model({});
      auto options = all_overlaps().options;
      options.groups = {{}, {}};
      auto layer = train::DataParallel::create({here.group, nullptr}, model.parameters(), options);
      ASSERT_TRUE(layer.ok()) << layer.status().to_string();
      model.attach(**layer);
      for (int step = 0; step < 3; ++step) {
        if (disturbed && step == 1) {
          ASSERT_TRUE(model.run(toy_sequence(99), {}).ok());
          ASSERT_TRUE((*layer)->discard_gradients().ok());
        }
        ASSERT_TRUE(model.run(toy_sequence(step * 2 + here.rank), {}).ok());
        ASSERT_TRUE((*layer)->step({.lr = 0.01, .tokens = 5}).ok());
      }
      hashes.push_back(*(*layer)->weight_hash());
    }
    EXPECT_EQ(hashes[0], hashes[1]);
  });
}

TEST(Step, a_loss_that_is_not_finite_is_named_with_its_rank) {
  run(World{.kind = WorldKind::threads, .size = 2}, [](Context& here) {
    ToyModel model({});
    auto options = all_overlaps().options;
    options.groups = {{}, {}};
    auto layer = train::DataParallel::create({here.group, nullptr}, model.parameters(), options);
    ASSERT_TRUE(layer.ok());
    model.attach(**layer);
    ASSERT_TRUE(model.run(toy_sequence(here.rank), {}).ok());
    auto report = (*layer)->step({.lr = 0.1, .tokens = 5, .loss_is_finite = here.rank != 1});
    ASSERT_TRUE(report.ok());
    EXPECT_EQ(report->outcome, train::Outcome::rejected);
    ASSERT_EQ(report->faults.size(), 1u);
    EXPECT_TRUE(report->faults[0].is_loss);
    EXPECT_EQ(report->faults[0].rank, 1);
  });
}

TEST(Step, tells_unused_parameters_once_and_leaves_them_alone) {
  run(World{.kind = WorldKind::threads, .size = 2}, [](Context& here) {
    ToyRun toy = all_overlaps();
    std::vector<float> before;
    toy.look = [&](int step, train::DataParallel& layer, const train::StepReport& report) {
      ASSERT_TRUE(layer.parameters_ready().ok());
      for (std::size_t i = 0; i < layer.parameters().size(); ++i) {
        if (layer.parameters()[i].name != "never") continue;
        const auto* values = static_cast<const float*>(layer.parameter(i).data);
        const std::vector<float> now(values, values + layer.parameter(i).count);
        if (!before.empty()) {
          EXPECT_EQ(now, before);
        }
        before = now;
        EXPECT_EQ(layer.step_counts()[i], 0);
      }
      if (step == 0) {
        EXPECT_THAT(report.unused, testing::UnorderedElementsAre("never", "empty"));
      } else {
        EXPECT_THAT(report.unused, IsEmpty());
      }
    };
    ASSERT_TRUE(train_toy(here.group, toy).ok());
  });
}

TEST(Step, tells_which_parameters_may_be_read) {
  run(World{.kind = WorldKind::threads, .size = 2}, [](Context& here) {
    for (const Mode& mode : five_modes()) {
      ToyModel model({});
      auto options = mode.options;
      options.groups = {{}, {}};
      auto layer = train::DataParallel::create({here.group, nullptr}, model.parameters(), options);
      ASSERT_TRUE(layer.ok());
      model.attach(**layer);
      std::vector<bool> closed(model.parameters().size(), false);
      (*layer)->on_gate([&](std::size_t index, bool open) { closed[index] = !open; });
      const std::size_t frozen = model.index_of("frozen");
      for (int step = 0; step < 2; ++step) {
        ASSERT_TRUE(model.run(toy_sequence(here.rank), {}).ok());
        ASSERT_TRUE((*layer)->step({.lr = 0.01, .tokens = 5}).ok());
        const bool gathered = mode.options.overlap_param_gather;
        for (std::size_t i = 0; i < closed.size(); ++i)
          EXPECT_EQ(closed[i], gathered && i != frozen) << mode.name;
        ASSERT_TRUE((*layer)->need(1).ok());
        EXPECT_FALSE(closed[1]);
        EXPECT_EQ(closed[2], gathered) << mode.name;
        ASSERT_TRUE((*layer)->parameters_ready().ok());
        EXPECT_FALSE(closed[2]);
      }
    }
  });
}

TEST(Step, takes_the_layout_of_rank_0s_first_backward) {
  run(World{.kind = WorldKind::threads, .size = 2}, [](Context& here) {
    ToyRun toy = all_overlaps();
    toy.model.shuffled_definition = true;
    toy.steps = 2;
    toy.look = [](int, train::DataParallel& layer, const train::StepReport&) {
      const auto order = layer.order();
      const auto at = [&](const std::string& name) {
        return std::find(order.begin(), order.end(), name) - order.begin();
      };
      EXPECT_LT(at("scale"), at("layers.2.weight"));
      EXPECT_LT(at("layers.2.weight"), at("layers.1.weight"));
      EXPECT_LT(at("layers.1.weight"), at("layers.0.weight"));
      EXPECT_LT(at("layers.0.weight"), at("embedding.weight"));
      EXPECT_THAT(layer.describe(), HasSubstr("embedding.weight is tied to head.weight"));
    };
    ASSERT_TRUE(train_toy(here.group, toy).ok());
  });
}

TEST(Step, an_order_hint_gives_the_same_bits) {
  run(World{.kind = WorldKind::threads, .size = 2}, [](Context& here) {
    ToyRun toy = all_overlaps();
    toy.look = [&](int, train::DataParallel& layer, const train::StepReport&) {
      toy.options.order_hint = layer.order();
    };
    const auto first = train_toy(here.group, toy);
    ASSERT_TRUE(first.ok());
    ASSERT_FALSE(toy.options.order_hint.empty());
    const auto second = train_toy(here.group, toy);
    ASSERT_TRUE(second.ok());
    EXPECT_EQ(first->hash, second->hash);
  });
}

TEST(Step, a_rank_that_is_late_changes_no_bits) {
  run(World{.kind = WorldKind::threads, .size = 3}, [](Context& here) {
    std::vector<std::string> hashes;
    for (int late : {-1, 0, 2}) {
      ToyRun toy = all_overlaps();
      toy.change = [late](int, int rank, int, ToyModel::Pass&) {
        if (rank == late) std::this_thread::sleep_for(std::chrono::milliseconds(20));
      };
      const auto outcome = train_toy(here.group, toy);
      ASSERT_TRUE(outcome.ok());
      hashes.push_back(outcome->hash);
    }
    EXPECT_EQ(hashes[0], hashes[1]);
    EXPECT_EQ(hashes[0], hashes[2]);
  });
}

TEST(Step, times_tell_the_story_of_a_step) {
  run(World{.kind = WorldKind::threads, .size = 2}, [](Context& here) {
    ToyRun toy = all_overlaps();
    toy.look = [](int step, train::DataParallel& layer, const train::StepReport&) {
      const train::StepTimes times = layer.take_times();
      EXPECT_GT(times.begin, 0);
      EXPECT_GT(times.end, times.begin);
      EXPECT_GT(times.forward, 0);
      EXPECT_GT(times.backward, 0);
      EXPECT_GT(times.update, 0);
      std::size_t gathers = 0, reductions = 0, controls = 0;
      for (const train::CollectiveTimes& one : times.collectives) {
        gathers += one.collective == Collective::all_gather;
        reductions += one.collective == Collective::reduce_scatter;
        controls += one.bucket == -1;
        EXPECT_GE(one.done, one.joined);
        EXPECT_GE(one.wait_end, one.wait_begin);
      }
      EXPECT_EQ(controls, 1u);
      EXPECT_GE(reductions, 3u);
      EXPECT_EQ(gathers, step == 0 ? 0u : reductions);
    };
    ASSERT_TRUE(train_toy(here.group, toy).ok());
  });
}

TEST(Step, a_batch_of_which_every_token_is_masked_changes_nothing_and_is_called_empty) {
  run(World{.kind = WorldKind::threads, .size = 2}, [](Context& here) {
    for (const Mode& mode : five_modes()) {
      ToyModel model({});
      auto options = mode.options;
      options.groups = {{.weight_decay = 0.1}, {.weight_decay = 0.1}};
      options.clip_grad = 1;
      auto layer = train::DataParallel::create({here.group, nullptr}, model.parameters(), options);
      ASSERT_TRUE(layer.ok());
      model.attach(**layer);
      std::string before;
      // The third step has no tokens at all, the fourth none on rank 1.
      for (int step = 0; step < 4; ++step) {
        ASSERT_TRUE(model.run(toy_sequence(here.rank), {}).ok());
        const bool masked = step == 2 || (step == 3 && here.rank == 1);
        before = *(*layer)->weight_hash();
        const auto report = (*layer)->step({.lr = 0.1, .tokens = masked ? 0 : 5});
        ASSERT_TRUE(report.ok()) << report.status().to_string();
        EXPECT_EQ(report->outcome, step == 2 ? train::Outcome::empty : train::Outcome::updated);
        EXPECT_TRUE(std::isfinite(report->grad_norm));
        EXPECT_EQ(*(*layer)->weight_hash() == before, step == 2) << mode.name;
      }
      EXPECT_EQ((*layer)->step_counts()[0], 3);
    }
  });
}

TEST(Step, without_a_number_of_tokens_is_refused) {
  run(World{.kind = WorldKind::threads, .size = 1}, [](Context& here) {
    ToyModel model({});
    train::DataParallelOptions options;
    options.groups = {{}, {}};
    auto layer = train::DataParallel::create({here.group, nullptr}, model.parameters(), options);
    ASSERT_TRUE(layer.ok());
    model.attach(**layer);
    ASSERT_TRUE(model.run(toy_sequence(0), {}).ok());
    const auto report = (*layer)->step({.lr = 0.1});
    EXPECT_EQ(report.status().code(), Code::invalid_argument);
    EXPECT_THAT(report.status().message(), HasSubstr("tokens"));
  });
}

// Two rejected steps, each computed again, a skipped one, and one that was begun twice.
void train_with_troubles(Context& here, bool numbered) {
  ToyModel model({});
  auto options = all_overlaps().options;
  options.groups = {{}, {}};
  options.check_for_nan = true;
  auto layer = train::DataParallel::create({here.group, nullptr}, model.parameters(), options);
  ASSERT_TRUE(layer.ok());
  model.attach(**layer);
  for (int step = 1; step <= 6; ++step) {
    bool plant = step == 2 || step == 4;
    if (step == 5) {
      ASSERT_TRUE(model.run(toy_sequence(here.rank), {}).ok());
      ASSERT_TRUE((*layer)->discard_gradients().ok());
    }
    for (bool again = true; again; plant = false) {
      ToyModel::Pass pass;
      pass.planted = plant ? std::nanf("") : 0.0F;
      ASSERT_TRUE(model.run(toy_sequence(here.rank), pass).ok());
      const auto report =
          (*layer)->step({.lr = 0.1, .tokens = 5, .number = numbered ? 100 + step : 0});
      ASSERT_TRUE(report.ok());
      again = report->outcome == train::Outcome::rejected;
    }
  }
}

TEST(Step, has_the_same_number_in_the_trace_when_it_is_computed_again) {
  for (bool numbered : {false, true}) {
    Folder folder;
    World world{.kind = WorldKind::shm, .size = 2};
    world.tune = [&](Config& config) { config.trace_dir = folder.path(); };
    run(world, [&](Context& here) { train_with_troubles(here, numbered); });
    const auto traced = trace::load_run(folder.path(), "");
    ASSERT_TRUE(traced.ok()) << traced.status().to_string();
    ASSERT_EQ(traced->ranks.size(), 2u);
    for (const trace::RankTrace& rank : traced->ranks) {
      std::vector<std::uint64_t> numbers;
      for (const trace::TraceEntry& entry : rank.steps) numbers.push_back(entry.sequence);
      const std::uint64_t first = numbered ? 101 : 1;
      EXPECT_THAT(numbers,
                  ElementsAre(first, first + 1, first + 2, first + 3, first + 4, first + 5));
    }
  }
}

TEST(Step, options_that_contradict_each_other_are_refused_by_name) {
  run(World{.kind = WorldKind::threads, .size = 1}, [](Context& here) {
    ToyModel model({});
    train::DataParallelOptions options;
    options.groups = {{}, {}};
    options.overlap_param_gather = true;
    auto layer = train::DataParallel::create({here.group, nullptr}, model.parameters(), options);
    ASSERT_FALSE(layer.ok());
    EXPECT_EQ(layer.status().code(), Code::invalid_argument);
    EXPECT_THAT(layer.status().message(), HasSubstr("use_distributed_optimizer"));
    options = {};
    options.reduction_order = ReductionOrder::any;
    layer = train::DataParallel::create({here.group, nullptr}, model.parameters(), options);
    EXPECT_THAT(layer.status().message(), HasSubstr("reduction_order must be rank or tree"));
    options = {};
    layer = train::DataParallel::create({here.group, nullptr}, model.parameters(), options);
    ASSERT_FALSE(layer.ok());
    EXPECT_THAT(layer.status().message(), HasSubstr("is in group 1, but there are 1"));
  });
}

TEST(Step, ranks_with_different_models_or_options_are_named) {
  run(World{.kind = WorldKind::threads, .size = 3}, [](Context& here) {
    ToyModel model({.width = here.rank == 2 ? 16 : 24});
    train::DataParallelOptions options;
    options.groups = {{}, {}};
    auto layer = train::DataParallel::create({here.group, nullptr}, model.parameters(), options);
    ASSERT_FALSE(layer.ok());
    EXPECT_EQ(layer.status().code(), Code::mismatch);
    EXPECT_THAT(layer.status().message(), HasSubstr("rank 2 has other parameters"));
  });
}

TEST(Step, replicas_that_drifted_apart_are_named) {
  run(World{.kind = WorldKind::threads, .size = 3}, [](Context& here) {
    ToyRun toy = all_overlaps();
    toy.steps = 1;
    toy.look = [&](int, train::DataParallel& layer, const train::StepReport&) {
      ASSERT_TRUE(layer.parameters_ready().ok());
      EXPECT_TRUE(layer.check_weights().ok());
      if (here.rank == 1) static_cast<float*>(layer.parameter(0).data)[7] += 1.0F;
      const Status status = layer.check_weights();
      EXPECT_EQ(status.code(), Code::mismatch);
      EXPECT_THAT(status.message(), HasSubstr("on rank 1"));
    };
    (void)train_toy(here.group, toy).ok();
  });
}

class Killed : public WorldTest {};

// In its backward, on its way to a reduction in which all others wait. They notice there, or in the
// metrics of the step before, which they read beside it.
TEST_P(Killed, a_rank_that_others_wait_for_in_a_reduction_ends_them_with_its_name) {
  in_world([](Context& here) {
    const int victim = here.world.doomed.front();
    std::chrono::steady_clock::time_point struck;
    ToyRun toy = all_overlaps();
    toy.steps = 100;
    toy.change = [&here, &struck, victim](int step, int rank, int, ToyModel::Pass& pass) {
      if (step != 3) return;
      pass.after_gradient = [&here, &struck, rank, victim](const std::string& name) {
        // What comes first in a backward, and what fills the first bucket of the others.
        if (name != (rank == victim ? "scale" : "layers.1.weight")) return;
        meet(here, "mid reduction");
        struck = std::chrono::steady_clock::now();
        if (rank == victim) ::kill(::getpid(), SIGKILL);
      };
    };
    const auto outcome = train_toy(here.group, toy);
    EXPECT_LT(std::chrono::steady_clock::now() - struck, std::chrono::seconds(2));
    ASSERT_FALSE(outcome.ok());
    EXPECT_EQ(outcome.status().code(), Code::peer_lost) << outcome.status().to_string();
    EXPECT_EQ(outcome.status().peer(), victim) << outcome.status().to_string();
    EXPECT_THAT(outcome.status().message(), HasSubstr("rank " + std::to_string(victim)));
    EXPECT_THAT(outcome.status().message(),
                AnyOf(HasSubstr("reduce_scatter"), HasSubstr("metrics")));
  });
}

INSTANTIATE_TEST_SUITE_P(Step, Killed,
                         testing::ValuesIn(each_victim_in({{.kind = WorldKind::shm, .size = 3},
                                                           {.kind = WorldKind::tcp, .size = 3}})),
                         name_of);

}  // namespace
}  // namespace tutti::test
