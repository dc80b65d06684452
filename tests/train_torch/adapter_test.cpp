// What the adapter promises for any module: parameters that are unused, frozen, tied, empty or used
// twice train as torch would train them, and what breaks the views is named.
#include <stdlib.h>

#include <filesystem>
#include <sstream>

#include "adapter_support.hpp"
#include "tutti/libtorch/recompute.hpp"

namespace adapter_test {
namespace {

using Names = std::vector<std::string>;

TEST(Adapter, trains_as_torch_does) {
  const Uses uses(5, Names{"a", "b"});
  auto net = std::make_shared<Net>(Names{"a", "b"});
  Net wanted(Names{"a", "b"});
  train_with_torch(wanted, {uses, uses});
  on_ranks(2, [&](auto group) {
    auto own = std::make_shared<Net>(Names{"a", "b"});
    auto model = wrap(own, group, all_overlaps());
    train(*own, *model, uses);
    expect_same(*own, wanted);
    EXPECT_TRUE(model->layer().check_weights().ok());
  });
}

// With what each rank keeps of it, `net` must be what torch makes of it when each rank uses its part.
void expect_as_torch(
    const Names& names, const std::vector<Uses>& parts, const Options& options,
    const std::function<void(Net&)>& prepare = [](Net&) {}) {
  Net wanted(names);
  prepare(wanted);
  train_with_torch(wanted, parts);
  on_ranks(static_cast<int>(parts.size()), [&](auto group) {
    auto net = std::make_shared<Net>(names);
    prepare(*net);
    auto model = wrap(net, group, options);
    train(*net, *model, parts[static_cast<std::size_t>(group->rank())]);
    for (const auto& parameter : net->parameters()) EXPECT_FALSE(parameter.grad().defined());
    const WeightScope scope(model.get(), *net);
    expect_same(*net, wanted);
  });
}

TEST(Adapter, trains_as_torch_does_where_gradients_are_kept_in_shards) {
  const Uses uses = {{"a", "b"}, {"a", "b", "a"}, {"b"}, {"a", "b"}};
  expect_as_torch({"a", "b"}, {uses, uses}, zero(2));
}

TEST(Scope, trains_as_torch_does_where_weights_are_kept_in_shards) {
  const Uses uses(4, Names{"a", "b", "c"});
  expect_as_torch({"a", "b", "c"}, {uses, uses, uses}, zero(3));
}

// Often, seldom, in another order, on one rank only, never: "d".
TEST(Scope, takes_layers_that_are_used_twice_in_turns_or_by_one_rank) {
  const Uses uses = {
      {"a", "b", "a", "c"}, {"a", "c"}, {"c", "b", "a"}, {"b"}, {"a", "b", "a", "c"}};
  Uses others = uses;
  others[1] = {"c", "a", "b"};
  others[3] = {"b", "d"};
  expect_as_torch({"a", "b", "c", "d"}, {uses, uses}, zero(3));
  expect_as_torch({"a", "b", "c", "d"}, {uses, others}, zero(3));
}

TEST(Scope, lets_gradients_through_a_frozen_layer) {
  const Uses uses(4, Names{"a", "ice", "b"});
  expect_as_torch({"a", "ice", "b"}, {uses, uses}, zero(3), [](Net& net) {
    for (auto& parameter : net.layers.at("ice")->parameters()) parameter.set_requires_grad(false);
  });
}

TEST(Scope, ties_tensors_over_one_storage) {
  const Uses uses = {{"a", "b"}, {"b"}, {"a", "b"}};
  std::vector<std::string> hashes;
  on_ranks(2, [&](auto group) {
    for (const int stage : {1, 3}) {
      auto net = std::make_shared<Net>(Names{"a", "b"});
      {
        torch::NoGradGuard no_grad;
        net->layers.at("b")->weight.set_data(net->layers.at("a")->weight.detach());
      }
      auto model = wrap(net, group, zero(stage));
      train(*net, *model, uses);
      const auto hash = model->layer().weight_hash();
      ASSERT_TRUE(hash.ok());
      if (group->rank() == 0) hashes.push_back(*hash);
    }
  });
  ASSERT_EQ(hashes.size(), 2U);
  EXPECT_EQ(hashes[0], hashes[1]);
}

TEST(Scope, is_entered_again_where_forward_is_recomputed) {
  const Names order{"a", "b", "a"};
  Net wanted(Names{"a", "b"});
  train_with_torch(wanted, {Uses(4, order), Uses(4, order)});
  on_ranks(2, [&](auto group) {
    auto net = std::make_shared<Net>(Names{"a", "b"});
    auto model = wrap(net, group, zero(3));
    std::vector<std::function<torch::Tensor(const torch::Tensor&)>> segments;
    for (const std::string& name : order) {
      segments.push_back([&net, &model, name](const torch::Tensor& x) {
        const WeightScope scope(model.get(), *net->layers.at(name));
        return scope.leave(torch::tanh(net->layers.at(name)->forward(scope.enter(x))));
      });
    }
    for (int i = 0; i < 4; ++i) {
      ASSERT_TRUE(model->begin_micro_batch(true).ok());
      auto x = torch::ones({2, 4}).requires_grad_(true);
      for (const auto& segment : segments) x = tutti::libtorch::recompute(segment, x);
      step(*model, x.sum());
    }
    const WeightScope scope(model.get(), *net);
    expect_same(*net, wanted);
  });
}

TEST(Scope, weights_are_nan_outside_of_it_and_a_gate_there_is_named) {
  on_ranks(2, [](auto group) {
    for (const auto type : {torch::kFloat, torch::kBFloat16}) {
      auto net = std::make_shared<Net>(Names{"a", "b"});
      net->to(type);
      auto model = wrap(net, group, zero(3));
      const torch::Tensor weight = net->layers.at("a")->weight;
      EXPECT_TRUE(torch::isnan(weight).all().template item<bool>());
      {
        const WeightScope scope(model.get(), *net->layers.at("a"));
        EXPECT_FALSE(torch::isnan(weight).any().template item<bool>());
        EXPECT_NO_THROW(Gate(model.get(), *net->layers.at("a")));
      }
      EXPECT_TRUE(torch::isnan(weight).all().template item<bool>());
      try {
        Gate gate(model.get(), *net);
        ADD_FAILURE() << "there was no scope";
      } catch (const tutti::libtorch::GateError& error) {
        EXPECT_NE(error.status().message().find("'a.weight'"), std::string::npos) << error.what();
      }
      model.reset();
      EXPECT_TRUE(torch::isnan(weight).all().template item<bool>()) << "memory that is still there";
    }
  });
}

TEST(Scope, that_forward_has_left_out_is_named_by_its_gradient) {
  on_ranks(2, [](auto group) {
    auto net = std::make_shared<Net>(Names{"a"});
    auto model = wrap(net, group, zero(3));
    ASSERT_TRUE(model->begin_micro_batch(true).ok());
    const auto status = model->backward(net->forward({"a"}, nullptr));
    EXPECT_EQ(status.code(), tutti::Code::invalid_argument);
    EXPECT_NE(status.message().find("'a."), std::string::npos) << status.to_string();
  });
}

TEST(Scope, serves_an_evaluation_between_steps) {
  on_ranks(2, [](auto group) {
    auto net = std::make_shared<Net>(Names{"a", "b"});
    auto twin = std::make_shared<Net>(Names{"a", "b"});
    auto model = wrap(net, group, zero(3));
    auto whole = wrap(twin, group, zero(1));
    for (int i = 0; i < 3; ++i) {
      train(*net, *model, {{"a", "b"}});
      train(*twin, *whole, {{"a", "b"}});
      torch::NoGradGuard no_grad;
      EXPECT_TRUE(torch::equal(net->forward({"b", "a"}, model.get()),
                               twin->forward({"b", "a"}, whole.get())));
    }
  });
}

TEST(Adapter, parameter_that_is_never_used_stays_and_is_told_once) {
  on_ranks(2, [](auto group) {
    auto net = std::make_shared<Net>(Names{"a", "idle"});
    const auto before = net->layers.at("idle")->weight.detach().clone();
    auto model = wrap(net, group, all_overlaps());
    Names told;
    for (int i = 0; i < 3; ++i) {
      ASSERT_TRUE(model->begin_micro_batch(true).ok());
      for (const auto& name : step(*model, net->forward({"a"}, model.get())).unused) {
        told.push_back(name);
      }
    }
    EXPECT_EQ(told, (Names{"idle.weight", "idle.bias"}));
    ASSERT_TRUE(model->parameters_ready().ok());
    EXPECT_TRUE(torch::equal(net->layers.at("idle")->weight, before));
  });
}

TEST(Adapter, parameters_used_in_turns_are_updated_in_turns) {
  const Uses uses = {{"a", "b"}, {"a"}, {"b"}, {"a"}, {"a", "b"}};
  auto net = std::make_shared<Net>(Names{"a", "b"});
  Net wanted(Names{"a", "b"});
  train_with_torch(wanted, {uses});
  on_ranks(1, [&](auto group) {
    auto model = wrap(net, group);
    train(*net, *model, uses);
    expect_same(*net, wanted);
  });
}

TEST(Adapter, parameter_used_on_one_rank_only_counts_as_zero_elsewhere) {
  const Uses with(4, Names{"a", "b"}), without(4, Names{"a"});
  Net wanted(Names{"a", "b"});
  train_with_torch(wanted, {with, without, without});
  on_ranks(3, [&](auto group) {
    auto net = std::make_shared<Net>(Names{"a", "b"});
    auto model = wrap(net, group, all_overlaps());
    train(*net, *model, group->rank() == 0 ? with : without);
    expect_same(*net, wanted);
  });
}

TEST(Adapter, rank_that_uses_nothing_counts_as_zero) {
  const Uses with(3, Names{"a"}), without(3, Names{});
  Net wanted(Names{"a"});
  train_with_torch(wanted, {with, without});
  on_ranks(2, [&](auto group) {
    auto net = std::make_shared<Net>(Names{"a"});
    auto model = wrap(net, group, all_overlaps());
    train(*net, *model, group->rank() == 0 ? with : without);
    expect_same(*net, wanted);
  });
}

TEST(Adapter, frozen_layer_stays_and_lets_gradients_through) {
  const Uses uses(4, Names{"a", "ice", "b"});
  const auto make = [] {
    auto net = std::make_shared<Net>(Names{"a", "ice", "b"});
    net->layers.at("ice")->weight.set_requires_grad(false);
    net->layers.at("ice")->bias.set_requires_grad(false);
    return net;
  };
  auto wanted = make();
  train_with_torch(*wanted, {uses, uses});
  on_ranks(2, [&](auto group) {
    auto net = make();
    const auto before = net->layers.at("ice")->weight.detach().clone();
    auto model = wrap(net, group, all_overlaps());
    train(*net, *model, uses);
    EXPECT_TRUE(torch::equal(net->layers.at("ice")->weight, before));
    expect_same(*net, *wanted);
  });
}

// One tensor under two names.
struct TiedNet : torch::nn::Module {
  TiedNet() {
    weight = register_parameter("weight", torch::arange(16.0).view({4, 4}) / 40);
    auto head = register_module("head", std::make_shared<torch::nn::Module>());
    head->register_parameter("weight", weight);
  }
  torch::Tensor forward() { return torch::tanh(torch::ones({2, 4}).matmul(weight)).sum(); }
  torch::Tensor weight;
};

TEST(Adapter, tied_parameter_is_one_with_an_alias) {
  on_ranks(2, [](auto group) {
    auto net = std::make_shared<TiedNet>();
    const double norm = [&] {
      TiedNet plain;
      plain.forward().backward();
      return plain.weight.grad().norm().template item<double>();
    }();
    auto model = wrap(net, group, all_overlaps());
    const auto& parameters = model->layer().parameters();
    ASSERT_EQ(parameters.size(), 1U);
    EXPECT_EQ(parameters[0].name, "weight");
    EXPECT_EQ(parameters[0].aliases, Names{"head.weight"});
    ASSERT_TRUE(model->begin_micro_batch(true).ok());
    EXPECT_NEAR(step(*model, net->forward()).grad_norm, norm, 1e-5);  // counted once
    EXPECT_EQ(model->layer().step_counts()[0], 1);
  });
}

// Two tensor objects over one storage: each has an accumulator of its own.
TEST(Adapter, tensors_over_one_storage_are_tied) {
  on_ranks(2, [](auto group) {
    auto net = std::make_shared<Net>(Names{"a", "b"});
    {
      torch::NoGradGuard no_grad;
      net->layers.at("b")->weight.set_data(net->layers.at("a")->weight.detach());
    }
    auto model = wrap(net, group, all_overlaps());
    const auto& parameters = model->layer().parameters();
    ASSERT_EQ(parameters.size(), 3U);
    EXPECT_EQ(parameters[0].aliases, Names{"b.weight"});
    // The second step uses one of the two only.
    train(*net, *model, {{"a", "b"}, {"b"}, {"a", "b"}});
    EXPECT_TRUE(torch::equal(net->layers.at("a")->weight, net->layers.at("b")->weight));
    EXPECT_TRUE(model->layer().check_weights().ok());
    EXPECT_EQ(model->layer().step_counts()[0], 3);
  });
}

TEST(Adapter, parameter_used_twice_gets_both_gradients) {
  const Uses uses(4, Names{"a", "b", "a"});
  Net wanted(Names{"a", "b"});
  train_with_torch(wanted, {uses, uses});
  on_ranks(2, [&](auto group) {
    auto net = std::make_shared<Net>(Names{"a", "b"});
    auto model = wrap(net, group, all_overlaps());
    train(*net, *model, uses);
    expect_same(*net, wanted);
  });
}

TEST(Adapter, parameter_in_two_recomputed_segments_gets_both_gradients_before_its_bucket_goes) {
  const Names order{"a", "b", "a"};
  Net wanted(Names{"a", "b"});
  train_with_torch(wanted, {Uses(4, order), Uses(4, order)});
  on_ranks(2, [&](auto group) {
    auto net = std::make_shared<Net>(Names{"a", "b"});
    auto options = all_overlaps();
    options.layer.bucket_bytes = 64;  // a bucket for each parameter
    auto model = wrap(net, group, options);
    std::vector<std::function<torch::Tensor(const torch::Tensor&)>> segments;
    for (const std::string& name : order) {
      segments.push_back([&net, &model, name](const torch::Tensor& x) {
        Gate gate(model.get(), *net->layers.at(name));
        return torch::tanh(net->layers.at(name)->forward(x));
      });
    }
    for (int i = 0; i < 4; ++i) {
      ASSERT_TRUE(model->begin_micro_batch(true).ok());
      auto x = torch::ones({2, 4});
      for (const auto& segment : segments) x = tutti::libtorch::recompute(segment, x);
      step(*model, x.sum());
    }
    ASSERT_TRUE(model->parameters_ready().ok());
    expect_same(*net, wanted);
    EXPECT_TRUE(model->layer().check_weights().ok());
  });
}

TEST(Recompute, draws_what_torch_drew_in_forward_and_goes_on_from_where_forward_was) {
  using Tensors = std::vector<torch::Tensor>;
  const auto part = [](const Tensors& x) {
    const auto inner = tutti::libtorch::recompute(
        [](const torch::Tensor& y) { return torch::dropout(torch::tanh(y), 0.5, true); }, x[0]);
    return Tensors{torch::dropout(inner * x[1], 0.5, true), x[1]};
  };
  Tensors results;
  for (const bool again : {false, true}) {
    torch::manual_seed(7);
    const Tensors leaves = {torch::ones({64}).requires_grad_(), torch::rand({64})};
    const Tensors y = again ? tutti::libtorch::recompute(part, leaves) : part(leaves);
    (y[0] + y[1]).sum().backward();
    results.push_back(torch::stack({y[0].detach(), leaves[0].grad(), torch::rand({64})}));
  }
  EXPECT_TRUE(torch::equal(results[0], results[1]));
  torch::NoGradGuard no_grad;
  EXPECT_FALSE(
      tutti::libtorch::recompute(part, {torch::ones({64}), torch::ones({64})})[0].requires_grad());
}

TEST(Adapter, parameter_without_elements_is_no_trouble) {
  on_ranks(2, [](auto group) {
    auto net = std::make_shared<Net>(Names{"a"});
    auto empty = net->register_parameter("empty", torch::empty({0, 4}));
    auto model = wrap(net, group, all_overlaps());
    for (int i = 0; i < 3; ++i) {
      ASSERT_TRUE(model->begin_micro_batch(true).ok());
      step(*model, net->forward({"a"}, model.get()) + empty.sum());
    }
    ASSERT_TRUE(model->parameters_ready().ok());
  });
}

TEST(Adapter, bf16_gradients_are_gathered_in_f32) {
  on_ranks(2, [](auto group) {
    auto net = std::make_shared<Net>(Names{"a"});
    net->to(torch::kBFloat16);
    auto model = wrap(net, group, all_overlaps());
    for (int i = 0; i < 3; ++i) {
      ASSERT_TRUE(model->begin_micro_batch(true).ok());
      Gate gate(model.get(), *net);
      auto x = torch::ones({2, 4}, torch::kBFloat16);
      ASSERT_TRUE(model->backward(net->layers.at("a")->forward(x).sum()).ok());
      EXPECT_FALSE(net->layers.at("a")->weight.grad().defined());
      const tutti::Buffer gradient = model->layer().gradient(0);
      EXPECT_EQ(gradient.dtype, tutti::Dtype::f32);
      ASSERT_TRUE(model->step({.lr = kLr, .tokens = 1}).ok());
    }
    EXPECT_TRUE(model->layer().check_weights().ok());
  });
}

TEST(Adapter, module_moved_after_wrapping_is_named) {
  on_ranks(1, [](auto group) {
    auto net = std::make_shared<Net>(Names{"a", "b"});
    auto model = wrap(net, group);
    net->layers.at("b")->to(torch::kDouble);
    const auto status = model->begin_micro_batch(true);
    EXPECT_EQ(status.code(), tutti::Code::invalid_argument);
    EXPECT_NE(status.message().find("'b.weight'"), std::string::npos) << status.message();
  });
}

TEST(Adapter, module_loaded_after_wrapping_is_named) {
  on_ranks(1, [](auto group) {
    std::stringstream file;
    torch::save(std::make_shared<Net>(Names{"a"}), file);
    auto net = std::make_shared<Net>(Names{"a"});
    auto model = wrap(net, group);
    ASSERT_TRUE(model->begin_micro_batch(true).ok());
    ASSERT_TRUE(model->backward(net->forward({"a"}, model.get())).ok());
    torch::load(net, file);
    const auto report = model->step({.lr = kLr, .tokens = 1});
    EXPECT_NE(report.status().message().find("'a.weight'"), std::string::npos);
  });
}

TEST(Adapter, dropped_gradients_are_put_back) {
  const Uses uses(3, Names{"a"});
  Net wanted(Names{"a"});
  train_with_torch(wanted, {uses});
  on_ranks(1, [&](auto group) {
    auto net = std::make_shared<Net>(Names{"a"});
    auto model = wrap(net, group);
    for (int i = 0; i < 3; ++i) {
      net->zero_grad(true);
      ASSERT_TRUE(model->begin_micro_batch(true).ok());
      auto loss = net->forward({"a"}, model.get());
      net->zero_grad(true);  // also where only the hook can notice
      step(*model, loss);
    }
    expect_same(*net, wanted);
    net->layers.at("a")->weight.mutable_grad() = torch::zeros({4, 4});
    const auto status = model->begin_micro_batch(true);
    EXPECT_NE(status.message().find("'a.weight'"), std::string::npos) << status.message();
  });
}

// A replica whose gathers are under way.
std::shared_ptr<DataParallel> just_stepped(std::shared_ptr<Net> net,
                                           std::shared_ptr<tutti::Group> group) {
  auto model = wrap(net, group, all_overlaps());
  train(*net, *model, Uses(2, Names{"a", "b"}));
  EXPECT_TRUE(model->begin_micro_batch(true).ok());
  step(*model, net->forward({"a", "b"}, model.get()));
  return model;
}

void expect_names_b(const tutti::Status& status) {
  EXPECT_EQ(status.code(), tutti::Code::invalid_argument);
  EXPECT_NE(status.message().find("'b."), std::string::npos) << status.message();
  EXPECT_EQ(status.message().find("'a."), std::string::npos) << status.message();
}

TEST(Adapter, read_that_bypasses_the_gate_is_named) {
  on_ranks(2, [](auto group) {
    auto net = std::make_shared<Net>(Names{"a", "b"});
    auto model = just_stepped(net, group);
    ASSERT_TRUE(model->begin_micro_batch(true).ok());
    Gate gate(model.get(), *net->layers.at("a"));
    expect_names_b(model->backward(net->forward({"a", "b"}, nullptr)));
  });
}

TEST(Adapter, read_before_the_gate_is_named_when_the_gate_comes_later) {
  on_ranks(2, [](auto group) {
    auto net = std::make_shared<Net>(Names{"a", "b"});
    auto model = just_stepped(net, group);
    ASSERT_TRUE(model->begin_micro_batch(true).ok());
    Gate a(model.get(), *net->layers.at("a"));
    auto loss = net->forward({"a", "b"}, nullptr);
    Gate b(model.get(), *net->layers.at("b"));
    expect_names_b(model->backward(loss));
  });
}

TEST(Adapter, read_without_a_graph_before_the_gate_gives_no_old_value) {
  on_ranks(2, [](auto group) {
    auto net = std::make_shared<Net>(Names{"a", "b"});
    auto model = just_stepped(net, group);
    torch::NoGradGuard no_grad;
    const auto& weight = net->layers.at("b")->weight;
    EXPECT_EQ(weight.sizes(), (std::vector<std::int64_t>{4, 4}));
    EXPECT_TRUE(weight.isnan().all().template item<bool>());
    // Whoever waited may read, by whatever call.
    ASSERT_TRUE(model->layer().parameters_ready().ok());
    EXPECT_FALSE(weight.isnan().any().template item<bool>());
  });
}

TEST(Adapter, module_buffers_follow_rank_0) {
  on_ranks(3, [](auto group) {
    auto net = std::make_shared<Net>(Names{"a"});
    auto mean = net->register_buffer("mean", torch::full({3}, 1.0 + group->rank()));
    auto model = wrap(net, group);
    train(*net, *model, {{"a"}});
    EXPECT_TRUE(torch::equal(mean, torch::ones({3})));
  });
}

// Buffers of several types, one of them a view that does not lie in one piece.
struct Buffered : Net {
  explicit Buffered(double value) : Net(Names{"a"}) {
    mean = register_buffer("mean", torch::full({3}, value));
    batches = register_buffer("batches", torch::full({}, value).to(torch::kLong));
    across = register_buffer("across", torch::full({2, 3}, value, torch::kDouble).t());
  }
  bool all_are(double value) const {
    return (mean == value).all().item<bool>() && (batches == value).all().item<bool>() &&
           (across == value).all().item<bool>();
  }
  torch::Tensor mean, batches, across;
};

TEST(Adapter, module_buffers_are_saved_and_loaded_with_the_weights) {
  std::string name = testing::TempDir() + "/tutti_adapter_XXXXXX";
  ASSERT_NE(mkdtemp(name.data()), nullptr);
  on_ranks(2, [&](auto group) {
    auto net = std::make_shared<Buffered>(7);
    auto model = wrap(net, group, all_overlaps());
    train(*net, *model, {{"a"}});
    tutti::train::CheckpointInfo info;
    info.iteration = 1;
    auto status = tutti::train::save_checkpoint(model->layer(), name, info);
    ASSERT_TRUE(status.ok()) << status.to_string();
    auto other = std::make_shared<Buffered>(group->rank());
    auto resumed = wrap(other, group, all_overlaps());
    const auto loaded = tutti::train::load_checkpoint(resumed->layer(), name);
    ASSERT_TRUE(loaded.ok()) << loaded.status().to_string();
    EXPECT_TRUE(other->all_are(7)) << other->mean << other->batches << other->across;
    ASSERT_TRUE(resumed->parameters_ready().ok());
    expect_same(*other, *net);
  });
  std::filesystem::remove_all(name);
}

// Two ranks with two rows each, and the bias on both.
TEST(Adapter, module_that_is_cut_over_ranks_has_the_hash_of_the_whole) {
  on_ranks(2, [](auto world) {
    auto alone = world->split(world->rank(), 0);
    ASSERT_TRUE(alone.ok());
    auto whole = wrap(std::make_shared<Net>(Names{"a"}), *alone);
    auto part = std::make_shared<Net>(Names{"a"});
    const std::int64_t row = 2 * world->rank();
    part->layers.at("a")->weight.set_data(
        part->layers.at("a")->weight.detach().slice(0, row, row + 2).clone());
    Options options;
    options.place_of = [&](const std::string& name, const torch::Tensor&) {
      tutti::train::ParameterPlace place;
      if (name == "a.weight") {
        place.whole_shape = {4, 4};
        place.box = {{4, 4}, {row, 0}, {2, 4}};
      } else {
        place.counted = world->rank() == 0;
      }
      return place;
    };
    auto model = DataParallel::create(part, {*alone, world}, options);
    ASSERT_TRUE(model.ok()) << model.status().to_string();
    const auto hash = (*model)->layer().weight_hash();
    ASSERT_TRUE(hash.ok()) << hash.status().to_string();
    EXPECT_EQ(*hash, *whole->layer().weight_hash());
  });
}

TEST(Adapter, sequential_is_gated_child_by_child) {
  on_ranks(2, [](auto group) {
    torch::nn::Sequential layers(torch::nn::Linear(4, 4), torch::nn::Tanh(),
                                 torch::nn::Linear(4, 4));
    auto model = wrap(layers.ptr(), group, all_overlaps());
    for (int i = 0; i < 3; ++i) {
      ASSERT_TRUE(model->begin_micro_batch(true).ok());
      step(*model, forward_gated(model.get(), layers, torch::ones({2, 4})).sum());
    }
    EXPECT_TRUE(model->layer().check_weights().ok());
  });
}

TEST(Adapter, module_outlives_the_wrapper) {
  auto net = std::make_shared<Net>(Names{"a"});
  torch::Tensor trained;
  on_ranks(1, [&](auto group) {
    auto model = wrap(net, group, all_overlaps());
    train(*net, *model, Uses(2, Names{"a"}));
    trained = net->layers.at("a")->weight.detach().clone();
  });
  EXPECT_TRUE(torch::equal(net->layers.at("a")->weight, trained));
  net->forward({"a"}, nullptr).backward();
  EXPECT_TRUE(net->layers.at("a")->weight.grad().defined());
}

TEST(Adapter, parameter_of_another_type_is_refused_by_name) {
  on_ranks(1, [](auto group) {
    auto net = std::make_shared<Net>(Names{"a"});
    net->layers.at("a")->to(torch::kDouble);
    auto model = DataParallel::create(net, {group, group}, {});
    EXPECT_NE(model.status().message().find("'a.weight'"), std::string::npos);
  });
}

}  // namespace
}  // namespace adapter_test
