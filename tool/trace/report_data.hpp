// tool/trace/report_data.hpp - a run as the JSON that the page of `tutti trace report` draws.
//
// docs/formats/trace.md lists the fields.
#pragma once

#include <string>

#include "core/json.hpp"
#include "tool/trace/findings.hpp"
#include "trace/exposure.hpp"

namespace tutti::tool::trace {

// A series of numbers by step.
struct Curve {
  std::string name;
  std::vector<std::pair<std::int64_t, double>> points;
};
// From the counters of rank 0's trace; else from a training log (docs/formats/training_log.md) in
// the folder, if there is one.
std::vector<Curve> curves_of(const tutti::trace::TracedRun& run, const std::string& folder);

// Everything but the timeline.
Json report_json(const tutti::trace::TracedRun& run, const tutti::trace::Analysis& analysis,
                 const Summary& summary, const std::vector<Finding>& findings,
                 const std::vector<Curve>& curves);
// Lanes of slices. Of more than `most` slices, short neighbours are drawn as one.
Json timeline_json(const tutti::trace::TracedRun& run, const tutti::trace::Analysis& analysis,
                   std::size_t most);

}  // namespace tutti::tool::trace
