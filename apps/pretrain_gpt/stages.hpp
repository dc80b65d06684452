// apps/pretrain_gpt/stages.hpp - the passes of a rank that has stages of a pipeline, and what they share with those
// of a rank that has the whole model.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "passes.hpp"

namespace pretrain {

// The micro-batches of each step that this rank has a part in.
class MicroBatches {
 public:
  MicroBatches(const Flags& flags, const Split& split, Data& data, Gpt& net);

  int count() const { return share_.count; }
  ModelBatch training(const StepPlace& place, int micro);
  ModelBatch validation(int round, int micro);
  // Dropout depends on nothing that a checkpoint does not hold.
  PassFacts facts(DataParallel* gates, const StepPlace& place, int micro) const {
    return {gates, place.step, static_cast<std::uint32_t>(index_of(micro))};
  }
  // What a test wants to go wrong in what a forward made.
  torch::Tensor plant(torch::Tensor made, const StepPlace& place) const;

 private:
  int index_of(int micro) const { return share_.first + micro; }

  const Flags& flags_;
  int rank_;
  BatchShare share_;
  Data& data_;
  Gpt& net_;
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
