#include "stages.hpp"

#include <map>
#include <utility>

#include "tutti/pipeline/run.hpp"

namespace pretrain {

namespace pipeline = tutti::pipeline;
using tutti::Result;
using tutti::Status;

namespace {

torch::Tensor view_of(const tutti::Buffer& buffer, const std::vector<std::int64_t>& shape) {
  return torch::from_blob(buffer.data, shape, torch_type(buffer.dtype));
}

// What a forward leaves for its backward.
struct Forwarded {
  torch::Tensor input;  // undefined where the model begins
  torch::Tensor output;
  std::size_t products = 0;  // weight gradients that wait in the queue
};

class Stages final : public pipeline::StageCompute {
 public:
  Stages(MicroBatches batches, Gpt& net, DataParallel& model, std::vector<std::int64_t> boundary)
      : batches_(std::move(batches)), net_(net), model_(model), boundary_(std::move(boundary)) {}

  int count(const StepPlace& place) const { return batches_.count(place); }
  double take_waited_s() { return batches_.take_waited_s(); }
  void begin_training(const StepPlace& place) { begin(place, -1); }
  void begin_validation(int round) { begin({}, round); }
  // Weight gradients are computed apart (zb-h1).
  void queue_weights() { net_.queue_weights(&queue_); }

  PassSums take_sums(bool tells_loss) {
    if (tells_loss) sums_.loss_sum = sum_of(losses_);
    return std::exchange(sums_, {});
  }

  Status forward(const pipeline::StagePass& pass) override {
    return as_status("forward", [&] { return forward_of(pass); });
  }

  Status backward(const pipeline::StagePass& pass) override {
    return as_status("backward", [&] { return backward_of(pass, pass.is_last_micro_batch); });
  }

  // Norms and embeddings get their gradients here, linear layers later.
  Status backward_input(const pipeline::StagePass& pass) override {
    return as_status("backward", [&]() -> Status {
      const std::size_t before = queue_.size();
      Status status = backward_of(pass, pass.is_last_micro_batch);
      products_[key_of(pass)] = queue_.size() - before;
      return status;
    });
  }

  Status backward_weight(const pipeline::StagePass& pass) override {
    const std::size_t count = std::exchange(products_[key_of(pass)], 0);
    return model_.add_gradients(
        [&]() -> Status {
          for (std::size_t i = 0; i < count; ++i)
            if (Status status = queue_.run_next(); !status.ok()) return status;
          return {};
        },
        pass.is_last_micro_batch);
  }

 private:
  using Key = std::pair<int, int>;  // virtual stage, micro-batch
  static Key key_of(const pipeline::StagePass& pass) {
    return {pass.virtual_stage, pass.micro_batch};
  }

  void begin(const StepPlace& place, int round) {
    place_ = place;
    round_ = round;
    sums_ = {};
    losses_.clear();
    forwarded_.clear();
    queue_.clear();
    products_.clear();
    model_batches_.clear();
  }

  bool trains() const { return round_ < 0; }

  Result<ModelBatch> batch_of(int micro) {
    if (const auto found = model_batches_.find(micro); found != model_batches_.end())
      return found->second;
    auto batch = trains() ? batches_.training(place_, micro) : batches_.validation(round_, micro);
    if (!batch.ok()) return batch;
    sums_.tokens += batch->counted;
    model_batches_.emplace(micro, *batch);
    return batch;
  }

  Status forward_of(const pipeline::StagePass& pass) {
    if (trains())
      if (Status status = model_.begin_micro_batch(false); !status.ok()) return status;
    const auto batch = batch_of(pass.micro_batch);
    if (!batch.ok()) return batch.status();
    const PassFacts facts =
        trains() ? batches_.facts(&model_, place_, pass.micro_batch) : PassFacts();
    Forwarded made;
    torch::Tensor x;
    if (pass.is_first_place) {
      x = net_.embed(batch->tokens, facts);
    } else {
      made.input = view_of(pass.input[0], boundary_).requires_grad_(trains());
      x = made.input;
    }
    x = net_.transform(pass.virtual_stage, x, facts);
    if (pass.is_last_place) x = (net_.losses(x, batch->labels, facts) * batch->loss_mask).sum();
    if (trains()) x = batches_.plant(x, place_);
    if (pass.is_last_place)
      losses_.push_back(x.detach());
    else
      view_of(pass.output[0], boundary_).copy_(x.detach());
    made.output = std::move(x);
    if (!trains()) return {};
    forwarded_[key_of(pass)] = std::move(made);
    return model_.end_forward();
  }

  Status backward_of(const pipeline::StagePass& pass, bool last) {
    Forwarded made = std::move(forwarded_.extract(key_of(pass)).mapped());
    const torch::Tensor gradient = pass.is_last_place
                                       ? torch::full_like(made.output, place_.loss_factor)
                                       : view_of(pass.output_gradient[0], boundary_);
    if (Status status = model_.backward(made.output, gradient, last); !status.ok()) return status;
    if (!pass.is_first_place) view_of(pass.input_gradient[0], boundary_).copy_(made.input.grad());
    return {};
  }

  MicroBatches batches_;
  Gpt& net_;
  DataParallel& model_;
  std::vector<std::int64_t> boundary_;  // shape of what crosses it: [b, s, h]
  StepPlace place_;
  int round_ = -1;  // of a validation; -1: it trains
  PassSums sums_;
  std::vector<torch::Tensor> losses_;
  std::map<int, ModelBatch> model_batches_;
  std::map<Key, Forwarded> forwarded_;
  tutti::libtorch::WeightQueue queue_;
  std::map<Key, std::size_t> products_;
};

class StagePasses final : public Passes {
 public:
  StagePasses(std::unique_ptr<Stages> stages, Gpt& net, bool tells_loss)
      : stages_(std::move(stages)), net_(net), tells_loss_(tells_loss) {}

  Status open(const Flags& flags, const Split& split, pipeline::PipelineOptions options) {
    options.kind = pipeline_kind(flags);
    pipeline_ = split.pipeline();
    options_ = options;
    if (options.kind == pipeline::PipelineKind::zb_h1) stages_->queue_weights();
    options.kind = pipeline::PipelineKind::forward;
    options.name = "validation";
    auto validation = pipeline::PipelineRunner::create(*split.pipeline(), options);
    if (!validation.ok()) return validation.status();
    validation_ = *std::move(validation);
    return {};
  }

  Result<PassSums> train(const StepPlace& place) override {
    if (Status status = make_runner(stages_->count(place)); !status.ok()) return status;
    stages_->begin_training(place);
    const auto times = training_->run(*stages_);
    if (!times.ok()) return times.status();
    PassSums sums = stages_->take_sums(tells_loss_);
    sums.waits = take_waits(net_);
    sums.waits.data_s = stages_->take_waited_s();
    sums.waits.pipeline_s = times->waiting_s;
    sums.waits.bubble_s = times->bubble_s;
    return sums;
  }

  Result<PassSums> evaluate(int round) override {
    stages_->begin_validation(round);
    const auto times = validation_->run(*stages_);
    if (!times.ok()) return times.status();
    return stages_->take_sums(tells_loss_);
  }

 private:
  // Whose steps have so many micro-batches. Collective.
  Status make_runner(int micro_batches) {
    if (training_ && options_.micro_batches == micro_batches) return {};
    training_.reset();
    options_.micro_batches = micro_batches;
    auto training = pipeline::PipelineRunner::create(*pipeline_, options_);
    if (!training.ok()) return training.status();
    training_ = *std::move(training);
    return {};
  }

  std::unique_ptr<Stages> stages_;
  Gpt& net_;
  bool tells_loss_;
  std::shared_ptr<tutti::Group> pipeline_;
  pipeline::PipelineOptions options_;  // of training_
  std::unique_ptr<pipeline::PipelineRunner> training_, validation_;
};

}  // namespace

Result<std::unique_ptr<Passes>> make_stage_passes(const Flags& flags, const Split& split,
                                                  const MicroBatches& batches, Gpt& net,
                                                  DataParallel& model) {
  const SplitSizes& sizes = split.sizes();
  const bool split_sequence = net.share().tensor->options().sequence_parallel;
  const std::vector<std::int64_t> boundary{
      flags.micro_batch_size, flags.seq_length / sizes.cp / (split_sequence ? sizes.tp : 1),
      flags.hidden_size};
  pipeline::PipelineOptions options;
  options.micro_batches = batches.validation_count();
  options.virtual_stages = sizes.virtual_stages;
  options.boundaries = {
      {{static_cast<std::size_t>(boundary[0] * boundary[1] * boundary[2]), weight_dtype(flags)}}};
  auto passes = std::make_unique<StagePasses>(
      std::make_unique<Stages>(batches, net, model, boundary), net, split.tells_loss());
  if (Status status = passes->open(flags, split, options); !status.ok()) return status;
  return std::unique_ptr<Passes>(std::move(passes));
}

}  // namespace pretrain
