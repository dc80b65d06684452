// Layers that are split over ranks compute what the unsplit layer computes, forward and backward.
#include <ATen/CPUGeneratorImpl.h>
#include <torch/csrc/autograd/function_hook.h>

#include "parallel_support.hpp"

namespace parallel_test {
namespace {

using namespace tutti::libtorch;  // NOLINT: the subject of this file

constexpr std::int64_t kRows = 2, kSequence = 8, kWidth = 6, kWide = 10;

// How a pair of layers is split.
struct Split {
  int ranks = 1;
  TensorParallelOptions options{};
  torch::ScalarType type = torch::kDouble;
  std::int64_t sequence = kSequence;
  double tolerance = 1e-12;
};

std::string name_of(const testing::TestParamInfo<Split>& info) {
  const Split& split = info.param;
  std::string name = "ranks_" + std::to_string(split.ranks);
  if (split.options.sequence_parallel) name += "_sequence_" + std::to_string(split.sequence);
  if (split.options.sequence_dim == 0) name += "_first";
  if (split.options.overlap)
    name += "_overlap_" + (split.options.pieces > 0 ? std::to_string(split.options.pieces)
                                                    : std::string("planned"));
  if (split.options.keep_gathered) name += "_kept";
  return name + "_" + c10::toString(split.type);
}

std::vector<Split> splits() {
  std::vector<Split> list;
  for (const int ranks : {1, 2, 3, 4}) {
    list.push_back({ranks, {}});
    list.push_back({ranks, {.sequence_parallel = true, .sequence_length = kSequence}});
    list.push_back(
        {ranks,
         {.sequence_parallel = true, .sequence_length = kSequence, .overlap = true, .pieces = 3}});
  }
  list.push_back({2, {.overlap = true}});
  list.push_back({2, {.sequence_parallel = true, .overlap = true, .keep_gathered = true}});
  list.push_back(
      {2, {.sequence_parallel = true, .overlap = true, .pieces = 0, .flops_per_s = 1e6}});
  list.push_back({3,
                  {.sequence_parallel = true,
                   .sequence_dim = 0,
                   .sequence_length = 7,
                   .overlap = true,
                   .pieces = 2},
                  torch::kDouble,
                  7});
  list.push_back({2, {.sequence_parallel = true}, torch::kFloat, kSequence, 1e-5});
  list.push_back(
      {2, {.sequence_parallel = true, .overlap = true}, torch::kBFloat16, kSequence, 3e-2});
  return list;
}

// Wholes that every rank can make.
struct Wholes {
  explicit Wholes(const Split& split) {
    const std::int64_t b = kRows, s = split.sequence;
    const Shape shape = split.options.sequence_dim == 0 ? Shape{s, b, kWidth} : Shape{b, s, kWidth};
    x = draw(shape, 1, split.type);
    seed = draw(shape, 2, split.type);
    norm_weight = draw({kWidth}, 3, split.type);
    norm_bias = draw({kWidth}, 4, split.type);
    first_weight = draw({kWide, kWidth}, 5, split.type);
    first_bias = draw({kWide}, 6, split.type);
    second_weight = draw({kWidth, kWide}, 7, split.type);
    second_bias = draw({kWidth}, 8, split.type);
  }
  torch::Tensor x, seed, norm_weight, norm_bias, first_weight, first_bias, second_weight,
      second_bias;
};

torch::Tensor norm(const torch::Tensor& x, const torch::Tensor& weight, const torch::Tensor& bias) {
  return torch::layer_norm(x, {kWidth}, weight, bias);
}

// y, dx, and gradients of norm, first and second layer, of the block in one place.
Tensors unsplit(const Split& split) {
  const Wholes whole(split);
  Tensors leaves = {leaf(whole.x),          leaf(whole.norm_weight),
                    leaf(whole.norm_bias),  leaf(whole.first_weight),
                    leaf(whole.first_bias), leaf(whole.second_weight),
                    leaf(whole.second_bias)};
  const auto wide = torch::linear(norm(leaves[0], leaves[1], leaves[2]), leaves[3], leaves[4]);
  const auto y = leaves[0] + torch::linear(torch::gelu(wide), leaves[5], leaves[6]);
  y.backward(whole.seed);
  Tensors answer = {y.detach()};
  for (const auto& tensor : leaves) answer.push_back(tensor.grad());
  return answer;
}

struct PartAnswer {
  torch::Tensor y, dx;
  std::vector<Placed> placed;
  Tensors gradients;
};

// One rank's share of the same block.
struct Block : torch::nn::Module {
  Block(SharedTensorParallel given, const Wholes& whole) : ranks(std::move(given)) {
    torch::NoGradGuard no_grad;
    norm_weight = register_parameter("norm_weight", whole.norm_weight.clone());
    norm_bias = register_parameter("norm_bias", whole.norm_bias.clone());
    ranks->mark_partial(*this);
    first = register_module(
        "first", std::make_shared<ColumnParallelLinear>(ranks, kWidth, Features{{kWide}}));
    second = register_module("second",
                             std::make_shared<RowParallelLinear>(ranks, Features{{kWide}}, kWidth));
    set_part(*ranks, first->weight, whole.first_weight);
    set_part(*ranks, first->bias, whole.first_bias);
    set_part(*ranks, second->weight, whole.second_weight);
    set_part(*ranks, second->bias, whole.second_bias);
  }
  torch::Tensor forward(const torch::Tensor& x) {
    return x + second->forward(torch::gelu(first->forward(norm(x, norm_weight, norm_bias))));
  }
  SharedTensorParallel ranks;
  torch::Tensor norm_weight, norm_bias;
  std::shared_ptr<ColumnParallelLinear> first;
  std::shared_ptr<RowParallelLinear> second;
};

torch::Tensor own(const Split& split, const Group& group, const torch::Tensor& whole) {
  if (!split.options.sequence_parallel) return whole;
  const auto part = tutti::exchange::part_of(split.sequence, group.size(), group.rank());
  return whole.narrow(split.options.sequence_dim, part.first, part.count).contiguous();
}

PartAnswer run_part(const Split& split, std::shared_ptr<Group> group, WeightQueue* queue) {
  const Wholes whole(split);
  Block block(std::make_shared<TensorParallel>(group, split.options), whole);
  block.first->queue = block.second->queue = queue;
  const auto x = leaf(own(split, *group, whole.x));
  PartAnswer answer;
  const auto y = block.forward(x);
  y.backward(own(split, *group, whole.seed));
  if (queue != nullptr) {
    EXPECT_EQ(queue->size(), 2U);
    EXPECT_FALSE(block.first->weight.grad().defined()) << "its product waits in the queue";
    EXPECT_TRUE(queue->run_all().ok());
  }
  answer.y = y.detach();
  answer.dx = x.grad();
  for (const auto& tensor : {block.norm_weight, block.norm_bias, block.first->weight,
                             block.first->bias, block.second->weight, block.second->bias}) {
    answer.placed.push_back(block.ranks->placed(tensor));
    answer.gradients.push_back(tensor.grad());
  }
  return answer;
}

void expect_equals_unsplit(const Split& split, const std::vector<PartAnswer>& parts) {
  const Tensors wanted = unsplit(split);
  Tensors ys, dxs;
  for (const PartAnswer& part : parts) {
    ys.push_back(part.y);
    dxs.push_back(part.dx);
  }
  if (split.options.sequence_parallel) {
    expect_close(torch::cat(ys, split.options.sequence_dim), wanted[0], split.tolerance, "y");
    expect_close(torch::cat(dxs, split.options.sequence_dim), wanted[1], split.tolerance, "dx");
  } else {
    for (std::size_t rank = 0; rank < parts.size(); ++rank) {
      expect_close(ys[rank], wanted[0], split.tolerance, "y");
      expect_close(dxs[rank], wanted[1], split.tolerance, "dx");
      EXPECT_TRUE(torch::equal(ys[rank], ys[0])) << "replicas have the same bits";
    }
  }
  for (std::size_t i = 0; i < parts[0].placed.size(); ++i) {
    std::vector<Placed> placed;
    Tensors gradients;
    for (const PartAnswer& part : parts) {
      placed.push_back(part.placed[i]);
      gradients.push_back(part.gradients[i]);
    }
    expect_close(whole_gradient(placed, gradients), wanted[i + 2], split.tolerance,
                 "gradient " + std::to_string(i));
  }
}

class SplitBlock : public testing::TestWithParam<Split> {};

TEST_P(SplitBlock, computes_what_the_unsplit_one_does) {
  const Split& split = GetParam();
  expect_equals_unsplit(split, on_each(split.ranks, [&](std::shared_ptr<Group> group) {
                          return run_part(split, group, nullptr);
                        }));
}

TEST_P(SplitBlock, computes_the_same_with_queued_weights) {
  const Split& split = GetParam();
  expect_equals_unsplit(split, on_each(split.ranks, [&](std::shared_ptr<Group> group) {
                          WeightQueue queue;
                          return run_part(split, group, &queue);
                        }));
}

INSTANTIATE_TEST_SUITE_P(Every, SplitBlock, testing::ValuesIn(splits()), name_of);

TEST(TensorParallelTest, times_of_its_exchanges_are_noted_once) {
  adapter_test::on_ranks(2, [](std::shared_ptr<Group> group) {
    auto ranks = std::make_shared<TensorParallel>(group);
    (void)reduce_from_ranks(ranks, torch::ones({1000}));
    const auto times = ranks->take_times();
    EXPECT_GT(times.wait_s, 0);
    EXPECT_GT(times.wire_s, 0);
    EXPECT_EQ(ranks->take_times().total_s, 0);
  });
}

TEST(TensorParallelTest, heads_that_do_not_divide_are_named) {
  adapter_test::on_ranks(3, [](std::shared_ptr<Group> group) {
    auto ranks = std::make_shared<TensorParallel>(group);
    try {
      ColumnParallelLinear layer(ranks, 8, Features{{3, 4, 2}, 1});
      FAIL() << "4 heads were shared out to 3 ranks";
    } catch (const ParallelError& error) {
      EXPECT_EQ(error.status().code(), tutti::Code::invalid_argument);
      EXPECT_NE(error.status().message().find("4 heads"), std::string::npos);
      EXPECT_NE(error.status().message().find("3 tensor-parallel ranks"), std::string::npos);
    }
  });
}

TEST(TensorParallelTest, part_of_the_wrong_length_is_named) {
  adapter_test::on_ranks(2, [](std::shared_ptr<Group> group) {
    auto ranks = std::make_shared<TensorParallel>(
        group, TensorParallelOptions{.sequence_parallel = true, .sequence_length = 9});
    EXPECT_THROW((void)gather_sequence(ranks, torch::ones({1, 3, 2})), ParallelError);
  });
}

// A fused weight that is cut by heads is [3, heads of the rank, d, in] row by row.
TEST(TensorParallelTest, fused_weight_is_cut_by_heads) {
  const auto whole = draw({12, 5}, 1);  // 3 × 2 heads × 2
  const auto parts = on_each(2, [&](std::shared_ptr<Group> group) {
    auto ranks = std::make_shared<TensorParallel>(group);
    ColumnParallelLinear layer(ranks, 5, Features{{3, 2, 2}, 1}, false);
    set_part(*ranks, layer.weight, whole);
    EXPECT_EQ(ranks->placed(layer.weight).whole_shape, (Shape{12, 5}));
    EXPECT_EQ(ranks->placed(layer.weight).whole, (Shape{3, 2, 2, 5}));
    EXPECT_EQ(ranks->placed(layer.weight).first, (Shape{0, group->rank(), 0, 0}));
    EXPECT_FALSE(ranks->placed(layer.weight).replicated);
    return layer.weight.detach();
  });
  for (std::int64_t rank = 0; rank < 2; ++rank)
    EXPECT_TRUE(torch::equal(parts[static_cast<std::size_t>(rank)].view({3, 2, 5}),
                             whole.view({3, 2, 2, 5}).select(1, rank)));
}

// Σ over ranks of ⟨f(x), y⟩ = Σ over ranks of ⟨x, fᵀ(y)⟩, with replicated sides counted once.
TEST(ConjugateFunctions, are_adjoint_to_their_backwards) {
  const auto check = [](const char* what, auto map, bool counts_in, bool counts_out) {
    const auto products = on_each(3, [&](std::shared_ptr<Group> group) {
      auto ranks = std::make_shared<TensorParallel>(
          group, TensorParallelOptions{.sequence_parallel = true, .sequence_length = 7});
      const std::uint64_t own = 10 + static_cast<std::uint64_t>(group->rank());
      auto [x, y] = map(ranks, own);
      y.backward(draw(y.sizes().vec(), counts_out ? 100 + own : 100));
      const auto before = (x * x.grad()).sum(),
                 after = (y * draw(y.sizes().vec(), counts_out ? 100 + own : 100)).sum();
      return std::pair{before.template item<double>(), after.template item<double>()};
    });
    double before = 0, after = 0;
    for (std::size_t rank = 0; rank < products.size(); ++rank) {
      if (counts_in || rank == 0) before += products[rank].first;
      if (counts_out || rank == 0) after += products[rank].second;
    }
    EXPECT_NEAR(before, after, 1e-10) << what;
  };
  const auto part = [](const SharedTensorParallel& ranks) {
    return tutti::exchange::part_of(7, ranks->size(), ranks->rank()).count;
  };
  using Ranks = const SharedTensorParallel&;
  const auto pair_of = [](torch::Tensor x, auto&& map) {
    x = leaf(x);
    return std::pair{x, map(x)};
  };
  check(
      "copy",
      [&](Ranks r, std::uint64_t) {
        return pair_of(draw({2, 7, 4}, 1), [&](auto& x) { return copy_to_ranks(r, x); });
      },
      false, true);
  check(
      "reduce",
      [&](Ranks r, std::uint64_t s) {
        return pair_of(draw({2, 7, 4}, s), [&](auto& x) { return reduce_from_ranks(r, x); });
      },
      true, false);
  check(
      "gather",
      [&](Ranks r, std::uint64_t s) {
        return pair_of(draw({2, part(r)}, s),
                       [&](auto& x) { return gather_from_ranks(r, x, -1, 7); });
      },
      true, false);
  check(
      "scatter",
      [&](Ranks r, std::uint64_t) {
        return pair_of(draw({7, 2}, 1), [&](auto& x) { return scatter_to_ranks(r, x, 0); });
      },
      false, true);
  check(
      "gather_sequence",
      [&](Ranks r, std::uint64_t s) {
        return pair_of(draw({2, part(r), 4}, s), [&](auto& x) { return gather_sequence(r, x); });
      },
      true, true);
  check(
      "reduce_scatter_sequence",
      [&](Ranks r, std::uint64_t s) {
        return pair_of(draw({2, 7, 4}, s), [&](auto& x) { return reduce_scatter_sequence(r, x); });
      },
      true, true);
}

// ---- vocabulary

struct Words {
  int ranks;
  std::int64_t vocabulary;
  bool sequence_parallel;
};

class Vocabulary : public testing::TestWithParam<Words> {};

TEST_P(Vocabulary, embeds_as_one_table_does_to_the_bit) {
  const auto [ranks, vocabulary, sequence_parallel] = GetParam();
  const auto table = draw({vocabulary, 4}, 1, torch::kFloat);
  const auto tokens = (torch::arange(12).view({2, 6}) * 37).remainder(vocabulary);
  const auto seed = draw({2, 6, 4}, 2, torch::kFloat);
  const auto whole = leaf(table);
  const auto wanted = torch::embedding(whole, tokens);
  wanted.backward(seed);
  struct Answer {
    torch::Tensor y, gradient;
    Placed placed;
  };
  const auto parts = on_each(ranks, [&](std::shared_ptr<Group> group) {
    auto tp = std::make_shared<TensorParallel>(
        group, TensorParallelOptions{.sequence_parallel = sequence_parallel, .sequence_length = 6});
    VocabParallelEmbedding layer(tp, vocabulary, 4);
    set_part(*tp, layer.weight, table);
    const auto y = layer.forward(tokens);
    y.backward(sequence_parallel ? scatter_to_ranks(tp, seed, 1) : seed);
    return Answer{y.detach(), layer.weight.grad(), tp->placed(layer.weight)};
  });
  Tensors ys, gradients;
  std::vector<Placed> placed;
  for (const auto& part : parts) {
    ys.push_back(part.y);
    gradients.push_back(part.gradient);
    placed.push_back(part.placed);
  }
  EXPECT_TRUE(torch::equal(sequence_parallel ? torch::cat(ys, 1) : ys.back(), wanted));
  EXPECT_TRUE(torch::equal(whole_gradient(placed, gradients), whole.grad()));
}

TEST_P(Vocabulary, cross_entropy_is_that_of_all_logits) {
  const auto [ranks, vocabulary, sequence_parallel] = GetParam();
  for (const double spread : {1.0, 1e4}) {  // exponentials of 1e4 overflow
    const auto whole = leaf(draw({2, 6, vocabulary}, 3) * spread);
    auto labels = (torch::arange(12).view({2, 6}) * 41).remainder(vocabulary);
    const auto weights = torch::rand({2, 6}, at::detail::createCPUGenerator(4), torch::kDouble);
    labels[0][1] = -100;  // nobody's: ignored
    const auto wanted = torch::nn::functional::cross_entropy(
        whole.view({12, vocabulary}), labels.view({-1}),
        torch::nn::functional::CrossEntropyFuncOptions().reduction(torch::kNone));
    (wanted.view({2, 6}) * weights).sum().backward();
    const auto parts = on_each(ranks, [&](std::shared_ptr<Group> group) {
      auto tp = std::make_shared<TensorParallel>(group);
      const auto logits = leaf(scatter_to_ranks(tp, whole.detach(), 2));
      const auto losses = vocab_parallel_cross_entropy(tp, logits, labels, vocabulary);
      expect_close(losses.detach(), wanted.detach().view({2, 6}), 1e-12, "losses");
      (losses * weights).sum().backward();
      return logits.grad();
    });
    expect_close(torch::cat(parts, 2), whole.grad(), 1e-12, "gradient of logits");
  }
}

INSTANTIATE_TEST_SUITE_P(Every, Vocabulary,
                         testing::Values(Words{1, 11, false}, Words{2, 257, false},
                                         Words{2, 257, true}, Words{3, 257, true},
                                         Words{4, 3, false}, Words{4, 3, true}),
                         [](const auto& info) {
                           return "ranks_" + std::to_string(info.param.ranks) + "_words_" +
                                  std::to_string(info.param.vocabulary) +
                                  (info.param.sequence_parallel ? "_sequence" : "");
                         });

TEST(VocabularyParts, logits_of_another_part_are_named) {
  auto alone = std::make_shared<TensorParallel>(nullptr);
  EXPECT_THROW((void)vocab_parallel_cross_entropy(alone, torch::zeros({2, 5}),
                                                  torch::zeros({2}, torch::kLong), 6),
               ParallelError);
}

// ---- failures

TEST(SplitFailure, leaves_forward_and_backward_with_its_status) {
  adapter_test::on_ranks(2, [](std::shared_ptr<Group> group) {
    auto ranks = std::make_shared<TensorParallel>(group);
    const auto x = leaf(torch::ones({4}));
    const auto y = copy_to_ranks(ranks, x);
    (void)group->barrier().ok();  // all have joined before it ends
    if (group->rank() == 1) {
      group->abort("enough");
      return;
    }
    try {
      y.sum().backward();
      FAIL() << "nobody summed up with this rank";
    } catch (const GateError& error) {  // as DataParallel::backward catches it
      EXPECT_EQ(error.status().code(), tutti::Code::aborted);
      EXPECT_NE(error.status().message().find("enough"), std::string::npos);
    }
    EXPECT_THROW((void)reduce_from_ranks(ranks, torch::ones({4})), ParallelError);
  });
}

// ---- on the training layer

torch::Tensor loss_of(const torch::Tensor& y, const Wholes& whole, int replica) {
  return (y * whole.seed).sum() * (replica + 1);
}

// Two replicas of a block that two ranks share: each wraps its part, and trains it with its like.
TEST(SplitTraining, gives_the_weights_of_the_unsplit_model) {
  constexpr int kSteps = 3;
  const Split split{.ranks = 2, .type = torch::kFloat};
  const Wholes whole(split);
  Tensors unsplit = {leaf(whole.first_weight), leaf(whole.first_bias),  leaf(whole.second_weight),
                     leaf(whole.second_bias),  leaf(whole.norm_weight), leaf(whole.norm_bias)};
  torch::optim::AdamW optimizer(unsplit,
                                torch::optim::AdamWOptions(adapter_test::kLr).weight_decay(0));
  for (int step = 0; step < kSteps; ++step) {
    optimizer.zero_grad();
    for (int replica = 0; replica < 2; ++replica) {
      const auto wide =
          torch::linear(norm(whole.x, unsplit[4], unsplit[5]), unsplit[0], unsplit[1]);
      const auto y = whole.x + torch::linear(torch::gelu(wide), unsplit[2], unsplit[3]);
      (loss_of(y, whole, replica) / 2).backward();
    }
    optimizer.step();
  }
  adapter_test::on_ranks(4, [&](std::shared_ptr<Group> world) {
    const int replica = world->rank() / 2;
    auto shared = world->split(replica, world->rank()),
         like = world->split(world->rank() % 2, replica);
    ASSERT_TRUE(shared.ok() && like.ok());
    auto ranks = std::make_shared<TensorParallel>(*shared, TensorParallelOptions{.overlap = true});
    auto block = std::make_shared<Block>(ranks, whole);
    auto model = adapter_test::wrap(block, *like);
    for (int step = 0; step < kSteps; ++step) {
      ASSERT_TRUE(model->begin_micro_batch(true).ok());
      adapter_test::step(*model, loss_of(block->forward(whole.x), whole, replica));
    }
    ASSERT_TRUE(model->parameters_ready().ok());
    const Tensors trained = {block->first->weight, block->first->bias, block->second->weight,
                             block->second->bias,  block->norm_weight, block->norm_bias};
    for (std::size_t i = 0; i < trained.size(); ++i) {
      const auto wanted = box_of(unsplit[i].detach(), ranks->placed(trained[i])).contiguous();
      expect_close(trained[i].detach(), wanted.view(trained[i].sizes()), 1e-5,
                   "parameter " + std::to_string(i));
    }
  });
}

// ---- weights that wait

class CountingHook : public torch::autograd::FunctionPostHook {
 public:
  explicit CountingHook(int* count) : count_(count) {}
  torch::autograd::variable_list operator()(const torch::autograd::variable_list& outputs,
                                            const torch::autograd::variable_list& inputs) override {
    if (inputs[0].defined()) ++*count_;
    return outputs;
  }

 private:
  int* count_;
};

TEST(WeightQueueTest, gives_the_bits_of_the_plain_linear_and_tells_the_accumulator) {
  for (const auto type : {torch::kFloat, torch::kDouble, torch::kBFloat16}) {
    const auto x = draw({2, 5, 7}, 1, type), seed = draw({2, 5, 3}, 2, type);
    Tensors plain = {leaf(x), leaf(draw({3, 7}, 3, type)), leaf(draw({3}, 4, type))};
    Tensors queued = {leaf(x), leaf(plain[1]), leaf(plain[2])};
    int told = 0;
    const auto accumulator = torch::autograd::impl::grad_accumulator(queued[1]);
    accumulator->add_post_hook(std::make_unique<CountingHook>(&told));
    WeightQueue queue;
    for (int micro_batch = 0; micro_batch < 2; ++micro_batch) {
      const auto y = torch::linear(plain[0], plain[1], plain[2]);
      y.backward(seed * (micro_batch + 1));
      const auto later = queued_linear(queued[0], queued[1], queued[2], &queue);
      later.backward(seed * (micro_batch + 1));
      EXPECT_TRUE(torch::equal(y, later));
    }
    EXPECT_EQ(told, 0);
    EXPECT_EQ(queue.size(), 2U);
    EXPECT_TRUE(torch::equal(queued[0].grad(), plain[0].grad()));
    EXPECT_TRUE(torch::equal(queued[2].grad(), plain[2].grad()));
    ASSERT_TRUE(queue.run_next().ok());
    EXPECT_EQ(told, 1);
    ASSERT_TRUE(queue.run_next().ok());
    EXPECT_EQ(told, 2);
    EXPECT_TRUE(queue.run_next().ok()) << "nothing waits: nothing to do";
    EXPECT_TRUE(torch::equal(queued[1].grad(), plain[1].grad()));
  }
}

TEST(WeightQueueTest, product_that_throws_is_a_status) {
  WeightQueue queue;
  queue.push([] { TORCH_CHECK(false, "no such product"); });
  const auto status = queue.run_all();
  EXPECT_EQ(status.code(), tutti::Code::invalid_argument);
  EXPECT_NE(status.message().find("no such product"), std::string::npos);
  EXPECT_EQ(queue.size(), 0U);
}

}  // namespace
}  // namespace parallel_test
