// The same model and data as pretrain_gpt's, trained by a plain loop with torch::optim::AdamW in one
// process. Takes pretrain_gpt's flags; prints a JSON object for every step.
#include <fmt/format.h>

#include "data.hpp"
#include "flags.hpp"
#include "model.hpp"

using namespace pretrain;

namespace {

torch::optim::AdamW make_optimizer(Gpt& model, const Flags& flags) {
  std::vector<torch::Tensor> decaying, others;
  for (const auto& item : model.named_parameters()) {
    if (item.key() == "output_layer.weight" && !flags.untie_embeddings_and_output_weights) continue;
    (parameter_group(item.key(), item.value()) == 0 ? decaying : others).push_back(item.value());
  }
  const auto options = [&](double decay) {
    return std::make_unique<torch::optim::AdamWOptions>(
        torch::optim::AdamWOptions(flags.lr)
            .betas({flags.adam_beta1, flags.adam_beta2})
            .eps(flags.adam_eps)
            .weight_decay(decay));
  };
  std::vector<torch::optim::OptimizerParamGroup> groups;
  groups.emplace_back(decaying, options(flags.weight_decay));
  groups.emplace_back(others, options(0));
  return torch::optim::AdamW(groups, torch::optim::AdamWOptions(flags.lr));
}

double& decay_of(torch::optim::OptimizerParamGroup& group) {
  return static_cast<torch::optim::AdamWOptions&>(group.options()).weight_decay();
}

double one_step(Gpt& model, torch::optim::AdamW& optimizer, const ModelBatch& batch,
                const Flags& flags, double lr) {
  optimizer.zero_grad();
  const auto loss = loss_sum(model, batch, {}) / static_cast<double>(batch.counted);
  loss.backward();
  if (flags.clip_grad > 0) {
    std::vector<torch::Tensor> all;
    for (const auto& group : optimizer.param_groups()) {
      all.insert(all.end(), group.params().begin(), group.params().end());
    }
    torch::nn::utils::clip_grad_norm_(all, flags.clip_grad);
  }
  for (auto& group : optimizer.param_groups()) {
    static_cast<torch::optim::AdamWOptions&>(group.options()).lr(lr);
  }
  optimizer.step();
  return loss.item<float>();
}

}  // namespace

int main(int argc, char** argv) {
  auto parsed = parse_flags(argc, argv);
  if (parsed.exit_code) {
    fmt::print(stderr, "{}\n", parsed.text);
    return *parsed.exit_code;
  }
  Flags& flags = parsed.flags;
  auto data = Data::open(flags);
  if (!data.ok() || !check_batches(flags, 1).ok()) return 2;
  at::set_num_threads(1);
  auto model = make_model(flags, whole_share(flags));
  auto optimizer = make_optimizer(*model, flags);
  const Schedule schedule = flags.schedule();
  std::uint64_t consumed = 0;
  for (std::int64_t step = 1; step <= flags.train_iters; ++step) {
    const int sequences = schedule.ramp.at(consumed, flags.global_batch_size);
    const auto tokens = data->training(consumed, sequences);
    if (!tokens.ok()) return 2;
    consumed += static_cast<std::uint64_t>(sequences);
    decay_of(optimizer.param_groups()[0]) = schedule.decay.at(step);
    const ModelBatch batch = cut_batch(*model, *tokens, sequences);
    const double loss = one_step(*model, optimizer, batch, flags, schedule.rate.at(step));
    fmt::print("{{\"step\":{},\"loss\":{:.17g}}}\n", step, loss);
  }
}
