#include <fmt/format.h>

#include "device.hpp"
#include "model.hpp"
#include "precision.hpp"
#include "subject.hpp"

namespace tutti::libtorch {

bool TrainingTask::decays(const std::string&, const torch::Tensor& value) const {
  return value.dim() >= 2;
}

}  // namespace tutti::libtorch

namespace pretrain {

using tutti::Result;
using tutti::Status;
using tutti::libtorch::LossSum;
using tutti::libtorch::TrainingTask;

namespace {

// Its samples stand where pretrain_gpt's sequences do.
class TaskLosses final : public MicroLosses {
 public:
  TaskLosses(TrainingTask& task, const Flags& flags, const Split& split)
      : task_(task),
        flags_(flags),
        rank_(split.everyone()->rank()),
        dp_rank_(split.dp_rank()),
        dp_size_(split.sizes().dp) {}

  int count(const StepPlace& place) const override { return share_of(place.batch).count; }
  int validation_count() const override { return share_of(flags_.global_batch_size).count; }

  Result<Loss> training(const StepPlace& place, int micro, DataParallel* gates) override {
    const int index = share_of(place.batch).first + micro;
    Loss made = loss_of(place.sequences + first_of(index), true, gates);
    made.sum = planted(std::move(made.sum), place, flags_, rank_);
    return made;
  }

  Result<Loss> validation(int round, int micro, DataParallel* gates) override {
    const BatchShare share = share_of(flags_.global_batch_size);
    return loss_of(first_of(round * share.total + share.first + micro), false, gates);
  }

 private:
  BatchShare share_of(int samples) const {
    return share_of_batch(flags_, samples, dp_rank_, dp_size_);
  }
  std::uint64_t first_of(int micro) const {
    return static_cast<std::uint64_t>(micro) * static_cast<std::uint64_t>(flags_.micro_batch_size);
  }

  Loss loss_of(std::uint64_t first, bool training, DataParallel* gates) {
    LossSum made = task_.loss({first, flags_.micro_batch_size, training}, gates);
    TORCH_CHECK(made.sum.defined() && made.sum.dim() == 0,
                "a TrainingTask's loss is a sum: one number, not a tensor of several");
    return {std::move(made.sum), made.count};
  }

  TrainingTask& task_;
  const Flags& flags_;
  int rank_, dp_rank_, dp_size_;
};

class TaskSubject final : public Subject {
 public:
  explicit TaskSubject(TrainingTask& task) : task_(task) {}

  Status make(const Flags& flags, const Split&) override {
    module_ = task_.make_model(flags.seed);
    if (module_ == nullptr)
      return {tutti::Code::invalid_argument, "TrainingTask::make_model made no model"};
    if (weight_dtype(flags) != tutti::Dtype::f32) module_->to(torch_type(weight_dtype(flags)));
    module_->to(device_of(flags));
    return {};
  }

  std::shared_ptr<torch::nn::Module> module() const override { return module_; }

  std::string describe(const Flags& flags, std::size_t elements) const override {
    return fmt::format("{} of {} parameters, {}", flags.program, elements, precision_name(flags));
  }

  void adapt(tutti::libtorch::Options& options, const Split&) const override {
    options.group_of = [this](const std::string& name, const torch::Tensor& value) {
      return task_.decays(name, value) ? 0 : 1;
    };
  }

  Result<std::unique_ptr<Passes>> passes(const Flags& flags, const BatchRamp&, const Split& split,
                                         Data&, DataParallel& model) const override {
    return Passes::create(std::make_unique<TaskLosses>(task_, flags, split), model,
                          split.tells_loss());
  }

 private:
  TrainingTask& task_;
  std::shared_ptr<torch::nn::Module> module_;
};

}  // namespace

std::unique_ptr<Subject> task_subject(TrainingTask& task) {
  return std::make_unique<TaskSubject>(task);
}

}  // namespace pretrain
