// What the layer is told in a step: gradients that come more than once, calls out of order, and
// gradients of parameters that forward read without their gate.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <limits>

#include "support/worlds.hpp"
#include "train/toy_run.hpp"

namespace tutti::test {
namespace {

using testing::AllOf;
using testing::HasSubstr;

train::DataParallelOptions options_of(const Mode& mode) {
  train::DataParallelOptions options = mode.options;
  options.bucket_bytes = 2000;
  options.groups = {{}, {}};
  return options;
}

// A model and its layer, with everything overlapped.
struct Replicated {
  explicit Replicated(Context& here, const Mode& mode = five_modes()[4]) {
    auto made =
        train::DataParallel::create({here.group, nullptr}, model.parameters(), options_of(mode));
    EXPECT_TRUE(made.ok()) << made.status().to_string();
    layer = *std::move(made);
    model.attach(*layer);
  }
  Status pass(int rank, const ToyModel::Pass& pass = {}) {
    return model.run(toy_sequence(rank), pass).status();
  }
  Result<train::StepReport> step() { return layer->step({.lr = 0.01, .tokens = 5}); }

  ToyModel model{{}};
  std::unique_ptr<train::DataParallel> layer;
};

// ---- gradients that come more than once in a backward

ToyRun toy_of(const Mode& mode, int parts) {
  ToyRun toy;
  toy.options = mode.options;
  toy.options.bucket_bytes = 2000;
  toy.options.clip_grad = 0.5;
  toy.change = [parts](int, int, int, ToyModel::Pass& pass) { pass.parts = parts; };
  return toy;
}

TEST(Gradients, that_come_in_two_parts_give_the_bits_of_those_that_come_whole) {
  run(World{.kind = WorldKind::threads, .size = 2}, [](Context& here) {
    const auto whole = train_toy(here.group, toy_of(five_modes()[0], 1));
    ASSERT_TRUE(whole.ok()) << whole.status().to_string();
    for (const Mode& mode : five_modes()) {
      const auto parts = train_toy(here.group, toy_of(mode, 2));
      ASSERT_TRUE(parts.ok()) << mode.name << ": " << parts.status().to_string();
      EXPECT_EQ(parts->hash, whole->hash) << mode.name;
    }
  });
}

TEST(Gradients, that_come_in_two_parts_from_the_start_of_a_run_with_a_known_order_do_too) {
  run(World{.kind = WorldKind::threads, .size = 2}, [](Context& here) {
    ToyRun toy = toy_of(five_modes()[4], 1);
    toy.look = [&](int, train::DataParallel& layer, const train::StepReport&) {
      toy.options.order_hint = layer.order();
    };
    const auto whole = train_toy(here.group, toy);
    ASSERT_TRUE(whole.ok()) << whole.status().to_string();
    ASSERT_FALSE(toy.options.order_hint.empty());
    toy.change = [](int, int, int, ToyModel::Pass& pass) { pass.parts = 2; };
    const auto parts = train_toy(here.group, toy);
    ASSERT_TRUE(parts.ok()) << parts.status().to_string();
    EXPECT_EQ(parts->hash, whole->hash);
  });
}

TEST(Gradients, may_come_less_often_than_learned_and_in_parts_on_one_rank_only) {
  run(World{.kind = WorldKind::threads, .size = 2}, [](Context& here) {
    const auto whole = train_toy(here.group, toy_of(five_modes()[4], 1));
    ASSERT_TRUE(whole.ok()) << whole.status().to_string();
    for (int kind : {0, 1}) {
      ToyRun toy = toy_of(five_modes()[4], 1);
      toy.change = [kind](int step, int rank, int, ToyModel::Pass& pass) {
        pass.parts = kind == 0 ? (step % 2 == 0 ? 2 : 1) : (rank == 1 ? 2 : 1);
      };
      const auto outcome = train_toy(here.group, toy);
      ASSERT_TRUE(outcome.ok()) << outcome.status().to_string();
      EXPECT_EQ(outcome->hash, whole->hash) << kind;
    }
  });
}

TEST(Gradients, that_come_once_more_when_their_bucket_has_gone_are_an_error_by_name) {
  run(World{.kind = WorldKind::threads, .size = 2}, [](Context& here) {
    Replicated replica(here);
    for (int step = 0; step < 2; ++step) {
      ASSERT_TRUE(replica.pass(here.rank).ok());
      ASSERT_TRUE(replica.step().ok());
    }
    const Status status = replica.pass(here.rank, {.told_again = "scale"});
    EXPECT_EQ(status.code(), Code::invalid_argument) << status.to_string();
    EXPECT_THAT(status.message(), AllOf(HasSubstr("'scale'"), HasSubstr("2 times")));
    EXPECT_EQ(replica.step().status().code(), Code::invalid_argument) << "the failure sticks";
  });
}

// ---- calls out of order

void expect_refused(const Status& status, const std::string& call) {
  EXPECT_EQ(status.code(), Code::invalid_argument) << call << ": " << status.to_string();
  EXPECT_THAT(status.message(), HasSubstr(call));
}

TEST(Calls, two_last_micro_batches_in_a_step_are_an_error_by_name) {
  run(World{.kind = WorldKind::threads, .size = 2}, [](Context& here) {
    Replicated replica(here);
    ASSERT_TRUE(replica.pass(here.rank).ok());
    expect_refused(replica.layer->begin_micro_batch(true), "begin_micro_batch(true)");
  });
}

TEST(Calls, a_micro_batch_without_backward_is_an_error_by_name) {
  run(World{.kind = WorldKind::threads, .size = 1}, [](Context& here) {
    Replicated replica(here);
    ASSERT_TRUE(replica.layer->begin_micro_batch(false).ok());
    expect_refused(replica.layer->begin_micro_batch(true), "begin_micro_batch(true)");
  });
}

TEST(Calls, a_step_before_the_last_micro_batch_is_an_error_by_name) {
  run(World{.kind = WorldKind::threads, .size = 1}, [](Context& here) {
    for (bool with_micro_batch : {false, true}) {
      Replicated replica(here);
      if (with_micro_batch) {
        ASSERT_TRUE(replica.pass(0, {.last = false}).ok());
      }
      expect_refused(replica.step().status(), "step()");
    }
  });
}

TEST(Calls, a_backward_or_gradient_out_of_order_shows_in_the_next_status_by_name) {
  run(World{.kind = WorldKind::threads, .size = 1}, [](Context& here) {
    Replicated twice(here), outside(here), never(here);
    ASSERT_TRUE(twice.layer->begin_micro_batch(true).ok());
    twice.layer->begin_backward();
    twice.layer->begin_backward();
    expect_refused(twice.layer->end_backward(), "begin_backward()");
    ASSERT_TRUE(outside.layer->begin_micro_batch(true).ok());
    outside.layer->ready(1);
    outside.layer->begin_backward();
    expect_refused(outside.layer->end_backward(), "ready('layers.0.weight')");
    expect_refused(never.layer->end_backward(), "end_backward()");
  });
}

TEST(Calls, a_step_may_be_begun_again_from_anywhere) {
  run(World{.kind = WorldKind::threads, .size = 2}, [](Context& here) {
    std::vector<std::string> hashes;
    for (bool disturbed : {false, true}) {
      Replicated replica(here);
      for (int step = 0; step < 4; ++step) {
        if (disturbed && step > 0) {
          ASSERT_TRUE(replica.layer->begin_micro_batch(step == 3).ok());
          if (step > 1) replica.layer->begin_backward();
          ASSERT_TRUE(replica.layer->discard_gradients().ok());
        }
        ASSERT_TRUE(replica.pass(step * 2 + here.rank).ok());
        ASSERT_TRUE(replica.step().ok());
      }
      hashes.push_back(*replica.layer->weight_hash());
    }
    EXPECT_EQ(hashes[0], hashes[1]);
  });
}

// ---- gates

TEST(Gates, that_forward_has_not_passed_in_this_step_are_named_when_the_gradient_comes) {
  run(World{.kind = WorldKind::threads, .size = 2}, [](Context& here) {
    Replicated replica(here);
    for (int step = 0; step < 2; ++step) {
      ASSERT_TRUE(replica.pass(here.rank).ok());
      ASSERT_TRUE(replica.step().ok());
    }
    const Status status = replica.pass(here.rank, {.ungated = "layers.1.weight"});
    EXPECT_EQ(status.code(), Code::invalid_argument) << status.to_string();
    EXPECT_THAT(status.message(), AllOf(HasSubstr("'layers.1.weight'"), HasSubstr("gate")));
  });
}

TEST(Gates, need_not_be_passed_again_where_all_parameters_were_waited_for_or_none_is_gathered) {
  run(World{.kind = WorldKind::threads, .size = 2}, [](Context& here) {
    for (const Mode& mode : five_modes()) {
      Replicated replica(here, mode);
      for (int step = 0; step < 3; ++step) {
        ASSERT_TRUE(replica.layer->parameters_ready().ok());
        ASSERT_TRUE(replica.pass(here.rank, {.ungated = "layers.1.weight"}).ok()) << mode.name;
        ASSERT_TRUE(replica.step().ok());
      }
    }
  });
}

// Two parameters, each in a bucket of its own, of which a rank may leave out the second.
struct TwoBuckets {
  explicit TwoBuckets(Context& here) {
    train::DataParallelOptions options = five_modes()[4].options;
    options.bucket_bytes = 1000;
    std::vector<train::Parameter> parameters;
    for (std::size_t i = 0; i < 2; ++i) {
      values[i].assign(1000, 1.0F);
      parameters.push_back({i == 0 ? "first" : "second", {}, {1000}, Buffer::of(values[i])});
    }
    layer = *train::DataParallel::create({here.group, nullptr}, parameters, options);
  }
  train::StepReport step(bool with_second, float gradient) {
    EXPECT_TRUE(layer->begin_micro_batch(true).ok());
    for (std::size_t i = 0; i < (with_second ? 2u : 1u); ++i) EXPECT_TRUE(layer->need(i).ok());
    layer->begin_backward();
    for (std::size_t i = with_second ? 2 : 1; i-- > 0;) {
      static_cast<float*>(layer->gradient(i).data)[0] += gradient;
      layer->ready(i);
    }
    EXPECT_TRUE(layer->end_backward().ok());
    return *layer->step({.lr = 0.1, .tokens = 1});
  }
  std::vector<float> values[2];
  std::unique_ptr<train::DataParallel> layer;
};

TEST(Gathers, are_all_waited_for_in_a_step_that_is_skipped_whatever_ranks_have_used) {
  run(World{.kind = WorldKind::threads, .size = 2}, [](Context& here) {
    TwoBuckets two(here);
    const float infinity = std::numeric_limits<float>::infinity();
    for (int step = 0; step < 6; ++step) {
      const bool skipped = step == 3;
      const auto report = two.step(here.rank == 0 || !skipped, skipped ? infinity : 1.0F);
      EXPECT_EQ(report.outcome, skipped ? train::Outcome::skipped : train::Outcome::updated);
      const auto times = two.layer->take_times();
      const auto gathers =
          std::count_if(times.collectives.begin(), times.collectives.end(),
                        [](const auto& one) { return one.collective == Collective::all_gather; });
      // Nothing was gathered before the first step, and after one that changed nothing.
      EXPECT_EQ(gathers, step == 0 || step == 4 ? 0 : 2) << "step " << step;
    }
    EXPECT_TRUE(two.layer->check_weights().ok());
  });
}

}  // namespace
}  // namespace tutti::test
