// apps/pretrain_gpt/subject.hpp - what is trained: a model, and how a micro-batch of it comes to a loss.
//
// The loop (trainer.hpp) knows no more of it. There are two: pretrain_gpt's own models, and whatever a
// tutti::libtorch::TrainingTask makes (tutti/libtorch/trainer.hpp).
#pragma once

#include <torch/torch.h>

#include <memory>
#include <string>

#include "data.hpp"
#include "flags.hpp"
#include "passes.hpp"
#include "split.hpp"
#include "tutti/libtorch.hpp"
#include "tutti/libtorch/trainer.hpp"

namespace pretrain {

class Subject {
 public:
  virtual ~Subject() = default;
  // A new model with its first values: this rank's part of it. Collective where it is cut. Throws what torch throws.
  virtual tutti::Status make(const Flags& flags, const Split& split) = 0;
  // Of the model that was made last.
  virtual std::shared_ptr<torch::nn::Module> module() const = 0;
  virtual std::string describe(const Flags& flags, std::size_t elements) const = 0;
  // How the layer is to take its parameters.
  virtual void adapt(tutti::libtorch::Options& options, const Split& split) const = 0;
  virtual tutti::Result<std::unique_ptr<Passes>> passes(const Flags& flags, const BatchRamp& ramp,
                                                        const Split& split, Data& data,
                                                        DataParallel& model) const = 0;
};

// `loss` is empty where it is cross entropy.
std::unique_ptr<Subject> gpt_subject(tutti::libtorch::TokenLoss loss);
// The task is lent.
std::unique_ptr<Subject> task_subject(tutti::libtorch::TrainingTask& task);

}  // namespace pretrain
