#include "passes.hpp"

#include <algorithm>
#include <chrono>
#include <limits>
#include <thread>
#include <vector>

#include "stages.hpp"

namespace pretrain {

using tutti::Code;
using tutti::Result;
using tutti::Status;

namespace {

constexpr int kMostAhead = 64;  // micro-batches of a rank: their tokens are small

}  // namespace

// ---- what both ways have in common

MicroBatches::MicroBatches(const Flags& flags, const BatchRamp& ramp, const Split& split,
                           Data& data, Gpt& net)
    : flags_(flags),
      rank_(split.everyone()->rank()),
      dp_rank_(split.dp_rank()),
      dp_size_(split.sizes().dp),
      ramp_(ramp),
      data_(data),
      net_(net) {
  // The next step's are read while this one computes.
  const int depth = std::clamp(validation_count(), 2, kMostAhead);
  prefetch_ =
      std::make_shared<Prefetch>([at = *this](const MicroPlace& place) { return at.read(place); },
                                 [at = *this](const MicroPlace& place) { return at.after(place); },
                                 static_cast<std::size_t>(depth));
}

MicroPlace MicroBatches::after(MicroPlace place) const {
  const int batch = ramp_.at(place.sequences, flags_.global_batch_size);
  if (place.micro + 1 < share_of(batch).count) return {place.sequences, place.micro + 1};
  return {place.sequences + static_cast<std::uint64_t>(batch), 0};
}

Result<TokenBatch> MicroBatches::read(const MicroPlace& place) const {
  const BatchShare share = share_of(ramp_.at(place.sequences, flags_.global_batch_size));
  const auto before = static_cast<std::uint64_t>(share.first + place.micro);
  const int size = flags_.micro_batch_size;
  return data_.training(place.sequences + before * static_cast<std::uint64_t>(size), size);
}

// 4 ranks × 1 micro-batch and 1 rank × 4 compute the same sequences and fold them in one order.
Result<ModelBatch> MicroBatches::training(const StepPlace& place, int micro) {
  const auto batch = prefetch_->take({place.sequences, micro});
  if (!batch.ok()) return batch.status();
  return cut_batch(net_, *batch, flags_.micro_batch_size);
}

Result<ModelBatch> MicroBatches::validation(int round, int micro) {
  const auto size = flags_.micro_batch_size;
  const BatchShare share = share_of(flags_.global_batch_size);
  const auto index = static_cast<std::uint64_t>(round * share.total + share.first + micro);
  const auto batch = data_.validation(index * static_cast<std::uint64_t>(size), size);
  if (!batch.ok()) return batch.status();
  return cut_batch(net_, *batch, size);
}

torch::Tensor planted(torch::Tensor made, const StepPlace& place, const Flags& flags, int rank) {
  const auto hits = [&](const std::optional<Planted>& wish) {
    return wish && wish->hits(place.step, rank, place.attempt);
  };
  if (hits(flags.inject_nan)) made = made * std::numeric_limits<float>::quiet_NaN();
  if (hits(flags.inject_loss_nan))
    made = made + (made * std::numeric_limits<float>::quiet_NaN()).detach();
  if (hits(flags.inject_inf) && made.requires_grad())
    made.register_hook([](const torch::Tensor& gradient) {
      return gradient * std::numeric_limits<float>::infinity();
    });
  if (flags.delayed_rank == rank)
    std::this_thread::sleep_for(std::chrono::milliseconds(flags.delay_ms));
  return made;
}

AxisWaits take_waits(const Gpt& net) {
  AxisWaits waits;
  waits.tensor_s = net.share().tensor->take_times().wait_s;
  if (net.share().context != nullptr) waits.context_s = net.share().context->take_times().wait_s;
  return waits;
}

namespace {

// Of pretrain_gpt's model.
class GptLosses final : public MicroLosses {
 public:
  GptLosses(MicroBatches batches, Gpt& net) : batches_(std::move(batches)), net_(net) {}

  int count(const StepPlace& place) const override { return batches_.count(place); }
  int validation_count() const override { return batches_.validation_count(); }
  Result<Loss> training(const StepPlace& place, int micro, DataParallel* gates) override {
    const auto batch = batches_.training(place, micro);
    if (!batch.ok()) return batch.status();
    const auto sum = loss_sum(net_, *batch, batches_.facts(gates, place, micro));
    return Loss{batches_.plant(sum, place), batch->counted};
  }
  Result<Loss> validation(int round, int micro, DataParallel* gates) override {
    const auto batch = batches_.validation(round, micro);
    if (!batch.ok()) return batch.status();
    PassFacts facts;
    facts.gates = gates;
    return Loss{loss_sum(net_, *batch, facts), batch->counted};
  }
  AxisWaits take_waits() override {
    AxisWaits waits = pretrain::take_waits(net_);
    waits.data_s = batches_.take_waited_s();
    return waits;
  }

 private:
  MicroBatches batches_;
  Gpt& net_;
};

// Every stage is here.
class WholePasses final : public Passes {
 public:
  WholePasses(std::unique_ptr<MicroLosses> losses, DataParallel& model, bool tells_loss)
      : losses_(std::move(losses)), model_(model), tells_loss_(tells_loss) {}

  Result<PassSums> train(const StepPlace& place) override {
    PassSums sums;
    std::vector<torch::Tensor> losses;
    const Status status = as_status("forward", [&]() -> Status {
      for (int micro = 0; micro < losses_->count(place); ++micro)
        if (Status made = train_one(place, micro, losses, sums); !made.ok()) return made;
      // Not before the last: on a GPU reading one waits for it.
      if (tells_loss_) sums.loss_sum = sum_of(losses);
      return {};
    });
    if (!status.ok()) return status;
    sums.waits = losses_->take_waits();
    return sums;
  }

  Result<PassSums> evaluate(int round) override {
    PassSums sums;
    std::vector<torch::Tensor> losses;
    DataParallel* gates = model_.layer().keeps_whole_weights() ? nullptr : &model_;
    const Status status = as_status("validation", [&]() -> Status {
      for (int micro = 0; micro < losses_->validation_count(); ++micro) {
        const auto made = losses_->validation(round, micro, gates);
        if (!made.ok()) return made.status();
        losses.push_back(made->sum);
        sums.tokens += made->counted;
      }
      if (tells_loss_) sums.loss_sum = sum_of(losses);
      return {};
    });
    if (!status.ok()) return status;
    return sums;
  }

 private:
  Status train_one(const StepPlace& place, int micro, std::vector<torch::Tensor>& losses,
                   PassSums& sums) {
    if (Status status = model_.begin_micro_batch(micro + 1 == losses_->count(place)); !status.ok())
      return status;
    const auto made = losses_->training(place, micro, &model_);
    if (!made.ok()) return made.status();
    losses.push_back(made->sum.detach());
    sums.tokens += made->counted;
    return model_.backward(place.loss_factor == 1 ? made->sum : made->sum * place.loss_factor);
  }

  std::unique_ptr<MicroLosses> losses_;
  DataParallel& model_;
  bool tells_loss_;
};

}  // namespace

Result<std::unique_ptr<Passes>> Passes::create(const Flags& flags, const BatchRamp& ramp,
                                               const Split& split, Data& data, Gpt& net,
                                               DataParallel& model) {
  MicroBatches batches(flags, ramp, split, data, net);
  if (split.pipeline() != nullptr) return make_stage_passes(flags, split, batches, net, model);
  return create(std::make_unique<GptLosses>(std::move(batches), net), model, split.tells_loss());
}

std::unique_ptr<Passes> Passes::create(std::unique_ptr<MicroLosses> losses, DataParallel& model,
                                       bool tells_loss) {
  return std::make_unique<WholePasses>(std::move(losses), model, tells_loss);
}

}  // namespace pretrain
