// A model that is cut over ranks has the norm, the weights and the hash of one that is not.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "support/worlds.hpp"
#include "train/cut_model.hpp"
#include "train/folder.hpp"
#include "train/toy_run.hpp"

namespace tutti::test {
namespace {

using testing::AllOf;
using testing::HasSubstr;

CutOptions options_of(const CutLayout& layout, int mode, Dtype dtype = Dtype::f32) {
  CutOptions options{.layout = layout, .dtype = dtype};
  options.train = five_modes()[static_cast<std::size_t>(mode)].options;
  options.train.bucket_bytes = 500;
  options.train.clip_grad = 0.01;
  return options;
}

void in_world(const CutLayout& layout, const std::function<void(Context&)>& body,
              WorldKind kind = WorldKind::threads) {
  run(World{.kind = kind, .size = layout.ranks()}, body);
}

// Trains, and writes down what every rank must say alike.
std::string train(const CutOptions& options, WorldKind kind = WorldKind::threads,
                  const CutModel::Pass& pass = {}) {
  const Folder folder;
  in_world(
      options.layout,
      [&](Context& here) {
        CutModel model(here.group, options);
        ASSERT_TRUE(model.status().ok()) << model.status().to_string();
        std::string text;
        for (int step = 0; step < 3; ++step) {
          const auto report = model.step(step, pass);
          ASSERT_TRUE(report.ok()) << report.status().to_string();
          EXPECT_EQ(report->outcome, train::Outcome::updated);
          text += fmt::format("{:a} ", report->grad_norm);
        }
        const auto hash = model.layer().weight_hash();
        ASSERT_TRUE(hash.ok()) << hash.status().to_string();
        const Status alike = model.layer().check_weights();
        EXPECT_TRUE(alike.ok()) << alike.to_string();
        overwrite(folder / std::to_string(here.rank), text + *hash);
      },
      kind);
  const std::string first = bytes_of(folder / "0");
  for (int rank = 1; rank < options.layout.ranks(); ++rank)
    EXPECT_EQ(bytes_of(folder / std::to_string(rank)), first) << rank;
  return first;
}

TEST(Cut, models_have_the_bits_of_the_whole_one_in_every_layout_and_mode) {
  for (const Dtype dtype : {Dtype::f32, Dtype::bf16}) {
    const std::string expected = train(options_of({.dp = 2}, 0, dtype));
    for (const CutLayout layout : {CutLayout{2, 2, 1}, CutLayout{2, 1, 2}, CutLayout{2, 2, 2},
                                   CutLayout{2, 3, 1}, CutLayout{2, 1, 3}})
      for (const int mode : {0, 1, 2, 4}) {
        if (reduced() && (mode == 1 || layout.ranks() > 4)) continue;
        EXPECT_EQ(train(options_of(layout, mode, dtype)), expected)
            << to_string(layout) << ", mode " << mode;
      }
  }
}

TEST(Cut, models_have_the_same_bits_in_processes_and_on_two_hosts) {
  const std::string expected = train(options_of({.dp = 2}, 0));
  for (const WorldKind kind : {WorldKind::shm, WorldKind::mixed})
    EXPECT_EQ(train(options_of({2, 2, 1}, 4), kind), expected);
}

TEST(Cut, models_add_micro_batches_as_the_whole_one_does) {
  const CutModel::Pass pass{.micro_batches = 3};
  const std::string expected = train(options_of({.dp = 2}, 0), WorldKind::threads, pass);
  for (const int mode : {0, 4})
    EXPECT_EQ(train(options_of({2, 2, 2}, mode), WorldKind::threads, pass), expected);
}

// Used by a rank of the sum or by none: the others take it over.
TEST(Cut, what_one_rank_of_a_sum_has_used_all_of_them_update) {
  in_world({2, 2, 1}, [](Context& here) {
    for (const int mode : {0, 4}) {
      CutModel model(here.group, options_of({2, 2, 1}, mode));
      ASSERT_TRUE(model.status().ok()) << model.status().to_string();
      CutModel::Pass pass;
      if (here.rank % 2 == 1) pass.skipped = "1.norm";
      for (int step = 0; step < 2; ++step) {
        const auto report = model.step(step, pass);
        ASSERT_TRUE(report.ok()) << report.status().to_string();
        EXPECT_TRUE(report->unused.empty());
      }
      EXPECT_TRUE(model.layer().check_weights().ok());
      pass.skipped = "1.norm";
      const auto report = model.step(2, pass);
      ASSERT_TRUE(report.ok()) << report.status().to_string();
      EXPECT_THAT(report->unused, testing::ElementsAre("1.norm"));
    }
  });
}

TEST(Cut, a_fault_is_named_with_the_part_of_the_model_that_it_is_in) {
  in_world({2, 2, 1}, [](Context& here) {
    CutOptions options = options_of({2, 2, 1}, 4);
    options.train.check_for_nan = true;
    CutModel model(here.group, options);
    ASSERT_TRUE(model.status().ok()) << model.status().to_string();
    // Rank 3: data rank 1 of tp 1. A parameter that is added up over tp first is named by that rank, too.
    for (const char* name : {"2.proj", "2.norm"}) {
      CutModel::Pass pass;
      if (here.rank == 3) pass.poisoned = name;
      const auto report = model.step(0, pass);
      ASSERT_TRUE(report.ok()) << report.status().to_string();
      EXPECT_EQ(report->outcome, train::Outcome::rejected);
      bool found = false;
      for (const train::Fault& fault : report->faults)
        found |= fault.part == "pp 0, tp 1" && fault.rank == 1 && fault.parameter == name;
      EXPECT_TRUE(found) << name;
    }
    EXPECT_EQ(model.step(1)->outcome, train::Outcome::updated);
  });
}

TEST(Cut, parts_that_count_different_tokens_are_named) {
  in_world({2, 1, 2}, [](Context& here) {
    CutModel model(here.group, options_of({2, 1, 2}, 4));
    const auto report = model.step(0, {.tokens = here.rank < 2 ? 5 : 6});
    EXPECT_EQ(report.status().code(), Code::mismatch);
    EXPECT_THAT(report.status().message(),
                AllOf(HasSubstr("pp 0, tp 0"), HasSubstr("pp 1, tp 0"), HasSubstr("10 tokens")));
  });
}

// ---- what does not make up a model

void expect_refused(const CutLayout& layout,
                    const std::function<void(int, train::Parameter&)>& change, Code code,
                    const std::string& words) {
  in_world(layout, [&](Context& here) {
    CutOptions options = options_of(layout, 4);
    options.change = [&](train::Parameter& parameter) { change(here.rank, parameter); };
    const CutModel model(here.group, options);
    EXPECT_EQ(model.status().code(), code) << model.status().to_string();
    EXPECT_THAT(model.status().message(), HasSubstr(words));
  });
}

TEST(Cut, boxes_that_do_not_make_up_the_whole_are_refused_by_name) {
  expect_refused(
      {1, 2, 1},
      [](int rank, train::Parameter& parameter) {
        if (parameter.name == "1.bias" && rank == 1) parameter.place.counted = true;
      },
      Code::invalid_argument, "24 elements of tensor 1.bias, which has 12");
  expect_refused(
      {1, 2, 1},
      [](int rank, train::Parameter& parameter) {
        if (parameter.name == "1.bias" && rank == 0) parameter.place.counted = false;
      },
      Code::invalid_argument, "0 elements of tensor 1.bias, which has 12");
  expect_refused(
      {1, 2, 1},
      [](int rank, train::Parameter& parameter) {
        if (parameter.name == "2.proj" && rank == 1) parameter.place.box.first = {0, 5};
      },
      Code::invalid_argument, "two data groups hold the same elements of tensor 2.proj");
  expect_refused(
      {1, 2, 1},
      [](int rank, train::Parameter& parameter) {
        if (parameter.name == "2.proj" && rank == 1) parameter.place.counted = false;
      },
      Code::invalid_argument, "72 elements of tensor 2.proj, which has 144");
  expect_refused(
      {1, 2, 1},
      [](int rank, train::Parameter& parameter) {
        if (parameter.name == "2.proj" && rank == 1) parameter.place.whole_shape = {144};
      },
      Code::invalid_argument, "tensor 2.proj");
}

TEST(Cut, a_box_that_cannot_be_is_refused_by_name) {
  const auto both = [](const auto& change) {
    return [change](int, train::Parameter& parameter) {
      if (parameter.name == "0.qkv") change(parameter.place);
    };
  };
  expect_refused({1, 2, 1}, both([](auto& place) { place.box.first[1] = 3; }),
                 Code::invalid_argument, "does not lie in [3, 4, 3, 12]");
  expect_refused({1, 2, 1}, both([](auto& place) { place.box.extent.pop_back(); }),
                 Code::invalid_argument, "4, 4 and 3 numbers");
  expect_refused({1, 2, 1}, both([](auto& place) { place.box.extent[0] = 2; }),
                 Code::invalid_argument, "it has 216 elements, and its box 144");
  expect_refused({1, 2, 1}, both([](auto& place) {
                   place.whole_shape = {35, 12};
                 }),
                 Code::invalid_argument, "not as many elements as the tensor's [35, 12]");
}

TEST(Cut, sums_that_do_not_fit_are_refused_by_name) {
  expect_refused(
      {1, 2, 1},
      [](int, train::Parameter& parameter) {
        if (parameter.name == "0.norm") parameter.place.sum = 7;
      },
      Code::invalid_argument, "sums[7]");
  expect_refused(
      {1, 2, 1},
      [](int rank, train::Parameter& parameter) {
        if (parameter.name == "0.norm" && rank == 1) parameter.place.sum = -1;
      },
      Code::mismatch, "sums[0]: rank 1 of it has other parameters");
  expect_refused(
      {1, 2, 1},
      [](int, train::Parameter& parameter) {
        if (parameter.name == "0.norm") parameter.place.counted = !parameter.place.counted;
      },
      Code::invalid_argument, "one counts here and the other does not");
}

TEST(Cut, everyone_must_hold_all_ranks_of_every_data_group) {
  run(World{.kind = WorldKind::threads, .size = 4}, [](Context& here) {
    auto data = here.group->split(here.rank % 2, here.rank, {"data"});
    auto one_of_each = here.group->split(here.rank / 2, here.rank, {"model"});
    std::vector<float> values(3);
    const train::Parameter parameter{
        "p" + std::to_string(here.rank % 2), {}, {3}, Buffer::of(values)};
    const auto layer = train::DataParallel::create({*data, *one_of_each}, {parameter}, {});
    EXPECT_EQ(layer.status().code(), Code::invalid_argument) << layer.status().to_string();
    EXPECT_THAT(layer.status().message(), HasSubstr("1 of the 2 ranks"));
  });
}

TEST(Cut, replicas_in_two_data_groups_that_drift_apart_are_named) {
  in_world({1, 2, 1}, [](Context& here) {
    CutModel model(here.group, options_of({1, 2, 1}, 0));
    ASSERT_TRUE(model.status().ok()) << model.status().to_string();
    ASSERT_TRUE(model.layer().check_weights().ok());
    const auto& parameters = model.layer().parameters();
    for (std::size_t i = 0; i < parameters.size(); ++i)
      if (parameters[i].name == "3.bias" && here.rank == 1)
        static_cast<float*>(model.layer().parameter(i).data)[2] += 1;
    const Status status = model.layer().check_weights();
    EXPECT_EQ(status.code(), Code::mismatch) << status.to_string();
    EXPECT_THAT(status.message(), HasSubstr("3.bias"));
  });
}

}  // namespace
}  // namespace tutti::test
