// apps/pretrain_gpt/stages.hpp - the passes of a rank that has stages of a pipeline, and what they share with those
// of a rank that has the whole model.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "passes.hpp"
#include "prefetch.hpp"

namespace pretrain {

// The micro-batches of each step that this rank has a part in.
class MicroBatches {
 public:
  MicroBatches(const Flags& flags, const BatchRamp& ramp, const Split& split, Data& data, Gpt& net);

  // How many a step has on this rank, and a validation.
  int count(const StepPlace& place) const { return share_of(place.batch).count; }
  int validation_count() const { return share_of(flags_.global_batch_size).count; }
  tutti::Result<ModelBatch> training(const StepPlace& place, int micro);
  tutti::Result<ModelBatch> validation(int round, int micro);
  // For how long training() waited for tokens since it was last asked.
  double take_waited_s() { return prefetch_->take_waited_s(); }
  // Dropout depends on nothing that a checkpoint does not hold.
  PassFacts facts(DataParallel* gates, const StepPlace& place, int micro) const {
    return {gates, place.step, static_cast<std::uint32_t>(index_of(place, micro))};
  }
  // What a test wants to go wrong in what a forward made.
  torch::Tensor plant(torch::Tensor made, const StepPlace& place) const {
    return planted(std::move(made), place, flags_, rank_);
  }

 private:
  BatchShare share_of(int sequences) const {
    return share_of_batch(flags_, sequences, dp_rank_, dp_size_);
  }
  int index_of(const StepPlace& place, int micro) const {
    return share_of(place.batch).first + micro;
  }
  // The one that is computed after this one, in this step or the next.
  MicroPlace after(MicroPlace place) const;
  tutti::Result<TokenBatch> read(const MicroPlace& place) const;

  const Flags& flags_;
  int rank_, dp_rank_, dp_size_;
  BatchRamp ramp_;
  Data& data_;
  Gpt& net_;
  std::shared_ptr<Prefetch> prefetch_;
};

AxisWaits take_waits(const Gpt& net);

inline double sum_of(const std::vector<torch::Tensor>& losses) {
  double sum = 0;
  for (const torch::Tensor& loss : losses) sum += loss.item<double>();
  return sum;
}

// What torch and its layers throw becomes a status.
template <class Body>
tutti::Status as_status(const char* what, const Body& body) {
  try {
    return body();
  } catch (const tutti::libtorch::GateError& error) {
    return error.status();
  } catch (const c10::Error& error) {
    return {tutti::Code::internal, std::string(what) + ": " + error.what_without_backtrace()};
  }
}

// Collective along the pipeline.
tutti::Result<std::unique_ptr<Passes>> make_stage_passes(const Flags& flags, const Split& split,
                                                         const MicroBatches& batches, Gpt& net,
                                                         DataParallel& model);

}  // namespace pretrain
