// However pretrain_gpt's model is split over ranks, its loss and its gradients are those of one process, in f64.
#include <map>

#include "adapter_support.hpp"
#include "data.hpp"
#include "flags.hpp"
#include "model.hpp"
#include "split.hpp"
#include "tutti/libtorch/placed.hpp"

namespace pretrain {
namespace {

constexpr int kSequences = 2;

Flags model_flags() {
  Flags flags;
  flags.num_layers = 2;
  flags.hidden_size = 16;
  flags.num_attention_heads = 8;
  flags.seq_length = 32;
  flags.data_path = {"/usr/share/common-licenses/BSD"};
  return flags;
}

// Of a split model: its axes and settings, as the command line has them.
struct SplitCase {
  std::string name;
  Flags flags;
};

SplitCase split_case(int tp, int cp, bool sequence = false, bool overlap = false,
                     const std::string& exchange = "p2p", int window = 0) {
  SplitCase made;
  made.flags = model_flags();
  made.flags.tensor_parallel = tp;
  made.flags.context_parallel = cp;
  made.flags.sequence_parallel = sequence;
  made.flags.tp_comm_overlap = overlap;
  made.flags.cp_comm_type = exchange;
  made.flags.cp_window_size = window;
  if (exchange == "a2a+p2p") made.flags.hierarchical_cp_sizes = {2, cp / 2};
  made.name = "tp_" + std::to_string(tp) + "_cp_" + std::to_string(cp);
  if (sequence) made.name += overlap ? "_overlap" : "_sequence";
  if (cp > 1) made.name += "_" + (exchange == "a2a+p2p" ? "a2a_p2p" : exchange);
  if (window > 0) made.name += "_window_" + std::to_string(window);
  return made;
}

std::vector<SplitCase> split_cases() {
  return {split_case(2, 1),
          split_case(8, 1, true),
          split_case(4, 1, true, true),
          split_case(1, 2),
          split_case(1, 8),
          split_case(1, 4, false, false, "p2p", 2),
          split_case(1, 4, false, false, "allgather"),
          split_case(1, 8, false, false, "a2a"),
          split_case(1, 4, false, false, "a2a+p2p"),
          split_case(2, 2, false),
          split_case(2, 4, true, true, "a2a"),
          split_case(4, 2, true, false, "allgather")};
}

struct Gradients {
  double loss = 0;
  std::map<std::string, torch::Tensor> values;  // by the whole model's names
  std::map<std::string, tutti::libtorch::Placed> placed;
};

// Forward and backward of one micro-batch on one rank's share.
Gradients gradients_of(const Flags& flags, ModelShare share) {
  auto data = Data::open(flags.data_path, flags.seq_length, flags.seed, true);
  EXPECT_TRUE(data.ok()) << data.status().to_string();
  auto model = make_model(flags, std::move(share));
  model->to(torch::kDouble);
  const ModelBatch batch = cut_batch(*model, data->training(7, kSequences), kSequences);
  const auto loss = loss_sum(*model, batch, {});
  loss.backward();
  Gradients made;
  made.loss = loss.item<double>();
  for (const auto& item : model->named_parameters()) {
    made.values[item.key()] = item.value().grad();
    made.placed[item.key()] = model->share().tensor->placed(item.value());
  }
  return made;
}

class Layouts : public testing::TestWithParam<SplitCase> {};

TEST_P(Layouts, have_the_gradients_of_one_process) {
  const Gradients expected = gradients_of(model_flags(), whole_share(model_flags()));
  const Flags& flags = GetParam().flags;
  const int ranks = flags.tensor_parallel * flags.context_parallel;
  std::vector<Gradients> parts(static_cast<std::size_t>(ranks));
  std::vector<bool> first_of_tensor(parts.size());
  adapter_test::on_ranks(ranks, [&](std::shared_ptr<tutti::Group> group) {
    auto split = Split::create(group, flags);
    ASSERT_TRUE(split.ok()) << split.status().to_string();
    auto share = share_of(flags, *split);
    ASSERT_TRUE(share.ok()) << share.status().to_string();
    const auto rank = static_cast<std::size_t>(group->rank());
    parts[rank] = gradients_of(flags, *std::move(share));
    first_of_tensor[rank] = split->tp_rank() == 0;
  });
  double loss = 0;
  for (std::size_t rank = 0; rank < parts.size(); ++rank)
    if (first_of_tensor[rank]) loss += parts[rank].loss;
  EXPECT_NEAR(loss, expected.loss, 1e-10 * expected.loss);
  for (const auto& [name, wanted] : expected.values) {
    torch::Tensor sum = torch::zeros_like(wanted);
    for (std::size_t rank = 0; rank < parts.size(); ++rank) {
      const tutti::libtorch::Placed& placed = parts[rank].placed.at(name);
      // What all tensor-parallel ranks have the whole gradient of counts once.
      if (placed.replicated && !placed.partial && !first_of_tensor[rank]) continue;
      tutti::libtorch::box_of(sum, placed).add_(parts[rank].values.at(name).view(placed.shape));
    }
    const double scale = std::max(1.0, wanted.abs().max().item<double>());
    EXPECT_LE((sum - wanted).abs().max().item<double>(), 1e-10 * scale) << name;
  }
}

INSTANTIATE_TEST_SUITE_P(Split, Layouts, testing::ValuesIn(split_cases()),
                         [](const auto& info) { return info.param.name; });

// ---- which layers a stage has

std::vector<int> counts_of(int layers, int places, int first, int last) {
  Flags flags = model_flags();
  flags.num_layers = layers;
  flags.first_stage_layers = first;
  flags.last_stage_layers = last;
  std::vector<int> counts;
  int next = 0;
  for (const LayerRange& range : layers_of_places(flags, places)) {
    EXPECT_EQ(range.first, next);
    next += range.count;
    counts.push_back(range.count);
  }
  EXPECT_EQ(next, layers);
  return counts;
}

TEST(Stages, share_the_layers_out_evenly_unless_the_ends_are_given) {
  EXPECT_EQ(counts_of(8, 4, 0, 0), (std::vector<int>{2, 2, 2, 2}));
  EXPECT_EQ(counts_of(10, 4, 0, 0), (std::vector<int>{3, 3, 2, 2}));
  EXPECT_EQ(counts_of(8, 3, 1, 0), (std::vector<int>{1, 4, 3}));
  EXPECT_EQ(counts_of(9, 4, 1, 2), (std::vector<int>{1, 3, 3, 2}));
  EXPECT_EQ(counts_of(5, 1, 0, 0), (std::vector<int>{5}));
}

TEST(Splits, that_do_not_fit_name_the_flag) {
  const auto refusal = [](int ranks, const std::function<void(Flags&)>& change) {
    Flags flags = model_flags();
    change(flags);
    return split_sizes(flags, ranks).status().message();
  };
  EXPECT_NE(refusal(6, [](Flags& f) { f.tensor_parallel = 4; }).find("6 ranks"), std::string::npos);
  EXPECT_NE(refusal(3, [](Flags& f) { f.tensor_parallel = 3; }).find("--num-attention-heads 8"),
            std::string::npos);
  EXPECT_NE(refusal(8,
                    [](Flags& f) {
                      f.context_parallel = 8;
                      f.seq_length = 24;
                    })
                .find("--seq-length 24"),
            std::string::npos);
  EXPECT_NE(refusal(4, [](Flags& f) { f.pipeline_parallel = 4; }).find("--num-layers 2"),
            std::string::npos);
  EXPECT_NE(refusal(2,
                    [](Flags& f) {
                      f.pipeline_parallel = 2;
                      f.on_failure = kShrink;
                    })
                .find("--on-failure shrink"),
            std::string::npos);
  EXPECT_EQ(refusal(8, [](Flags& f) { f.tensor_parallel = 2; }), "");
}

}  // namespace
}  // namespace pretrain
