// apps/pretrain_gpt/passes.hpp - a step's forwards and backwards on this rank: of the model, or of its stages.
//
// Ordering       train and evaluate are collective.
// Failure        Status; what torch throws is one.
#pragma once

#include <cstdint>
#include <memory>

#include "data.hpp"
#include "flags.hpp"
#include "model.hpp"
#include "pass_sums.hpp"
#include "split.hpp"

namespace pretrain {

// Which step, and where its sequences begin.
struct StepPlace {
  std::int64_t step = 0;
  int attempt = 0;  // 0, or how often the step was computed before
  std::uint64_t sequences = 0;
  int batch = 0;           // sequences of it on all ranks
  double loss_factor = 1;  // by which losses are multiplied before backward
};

// What a micro-batch of a whole model comes to.
class MicroLosses {
 public:
  struct Loss {
    torch::Tensor sum;
    std::int64_t counted = 0;
  };
  virtual ~MicroLosses() = default;
  // Of this rank, in a step and in a validation.
  virtual int count(const StepPlace& place) const = 0;
  virtual int validation_count() const = 0;
  // `gates`: as PassFacts has them.
  virtual tutti::Result<Loss> training(const StepPlace& place, int micro, DataParallel* gates) = 0;
  virtual tutti::Result<Loss> validation(int round, int micro, DataParallel* gates) = 0;
  virtual AxisWaits take_waits() { return {}; }
};

class Passes {
 public:
  // Collective. All is lent.
  static tutti::Result<std::unique_ptr<Passes>> create(const Flags& flags, const BatchRamp& ramp,
                                                       const Split& split, Data& data, Gpt& net,
                                                       DataParallel& model);
  // Of whatever has losses. The model is lent.
  static std::unique_ptr<Passes> create(std::unique_ptr<MicroLosses> losses, DataParallel& model,
                                        bool tells_loss);
  virtual ~Passes() = default;

  // All micro-batches of a training step, up to their gradients.
  virtual tutti::Result<PassSums> train(const StepPlace& place) = 0;
  // Forwards of validation batch number `round`.
  virtual tutti::Result<PassSums> evaluate(int round) = 0;
};

// What a test wants to go wrong in what a forward of this rank made.
torch::Tensor planted(torch::Tensor made, const StepPlace& place, const Flags& flags, int rank);

}  // namespace pretrain
