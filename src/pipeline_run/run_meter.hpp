// pipeline_run/run_meter.hpp - where the time of a run goes, for its caller and for the trace.
//
//   waited for a message   ├──── bubble ────┤── exposed ──┤     sent: by the neighbour's stamp
//                        began            sent          came
//
// Thread-safety  none.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "tutti/pipeline/run.hpp"

namespace tutti::pipeline {

class RunMeter {
 public:
  // `sink` may be null, and is lent.
  RunMeter(trace::Sink* sink, const PipelineShape& shape);

  void begin(std::int64_t now);
  void computed(const PipelineOp& op, std::int64_t begin, std::int64_t end);
  // A receive was waited for; `sent` by this rank's clock.
  void waited(const PipelineOp& receive, std::int64_t begin, std::int64_t sent, std::int64_t end);
  // A send was: its slot is needed, or the run is over.
  void waited_to_send(std::int64_t begin, std::int64_t end);
  PipelineTimes finish(std::int64_t now);

  std::span<const PipelineSlice> slices() const { return slices_; }

 private:
  std::string name_of(const PipelineOp& op) const;

  trace::Sink* sink_;
  bool counts_;  // whether names in the trace have numbers
  std::int64_t began_ = 0;
  std::int64_t busy_ = 0, waiting_ = 0, bubble_ = 0;
  std::vector<PipelineSlice> slices_;
};

}  // namespace tutti::pipeline
