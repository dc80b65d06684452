#include <fmt/format.h>

#include "model.hpp"
#include "precision.hpp"
#include "subject.hpp"

namespace pretrain {

using tutti::Result;
using tutti::Status;

namespace {

class GptSubject final : public Subject {
 public:
  explicit GptSubject(tutti::libtorch::TokenLoss loss) : loss_(std::move(loss)) {}

  Status make(const Flags& flags, const Split& split) override {
    if (loss_ && split.sizes().tp > 1)
      return {tutti::Code::invalid_argument,
              "--tensor-model-parallel-size cuts the scores that a loss of one's own wants whole"};
    auto share = share_of(flags, split);
    if (!share.ok()) return share.status();
    net_ = make_model(flags, *std::move(share));
    net_->set_loss(loss_);
    return {};
  }

  std::shared_ptr<torch::nn::Module> module() const override { return net_; }

  std::string describe(const Flags& flags, std::size_t elements) const override {
    return fmt::format("{} of {} parameters ({} layers of {}), {}",
                       flags.has_rotary() ? "Llama" : "GPT", elements, flags.num_layers,
                       flags.hidden_size, precision_name(flags));
  }

  void adapt(tutti::libtorch::Options& options, const Split& split) const override {
    options.group_of = parameter_group;
    options.is_unit = is_block;
    if (!split.sizes().is_whole())
      options.place_of = [net = net_](const std::string&, const torch::Tensor& parameter) {
        return net->place_of(parameter);
      };
  }

  Result<std::unique_ptr<Passes>> passes(const Flags& flags, const BatchRamp& ramp,
                                         const Split& split, Data& data,
                                         DataParallel& model) const override {
    return Passes::create(flags, ramp, split, data, *net_, model);
  }

 private:
  tutti::libtorch::TokenLoss loss_;
  std::shared_ptr<Gpt> net_;
};

}  // namespace

std::unique_ptr<Subject> gpt_subject(tutti::libtorch::TokenLoss loss) {
  return std::make_unique<GptSubject>(std::move(loss));
}

}  // namespace pretrain
