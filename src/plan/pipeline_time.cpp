#include "plan/pipeline_time.hpp"

#include <algorithm>

#include "tutti/pipeline/simulate.hpp"

namespace tutti::plan {
namespace {

// Forwards of all places: what is played takes a fraction of a millisecond, for a search asks thousands of times.
constexpr double kMostPlayed = 512;

double slowest(std::span<const TwoWays> stages) {
  double most = 0;
  for (const TwoWays& stage : stages) most = std::max(most, stage.both());
  return most;
}

PipelineTime by_closed_forms(const ModelLayout& layout, std::span<const TwoWays> stages,
                             const PipelineTraffic& traffic) {
  double all = 0;
  for (const TwoWays& stage : stages) all += stage.both();
  const double messages =
      pipeline::uniform_exposed_messages(layout.schedule(), layout.pipeline_shape()).value_or(0);
  return {(all - slowest(stages)) / layout.virtual_stages, messages * traffic.message_s};
}

}  // namespace

PipelineTime pipeline_time(const ModelLayout& layout, std::span<const TwoWays> stages,
                           const PipelineTraffic& traffic) {
  const pipeline::PipelineShape shape = layout.pipeline_shape();
  if (double(shape.places()) * shape.micro_batches > kMostPlayed)
    return by_closed_forms(layout, stages, traffic);
  const auto programs = pipeline::build_pipeline(layout.schedule(), shape);
  if (!programs.ok()) return by_closed_forms(layout, stages, traffic);
  pipeline::PipelineDurations durations;
  for (int place = 0; place < shape.places(); ++place) {
    const TwoWays& stage = stages[static_cast<std::size_t>(place % shape.stages)];
    durations.places.push_back(
        {stage.forward / shape.virtual_stages, stage.backward / shape.virtual_stages, 0});
  }
  const auto silent = pipeline::simulate_pipeline(*programs, durations);
  durations.boundaries_s = traffic.boundaries_s;
  const auto whole = pipeline::simulate_pipeline(*programs, durations);
  if (!silent.ok() || !whole.ok()) return by_closed_forms(layout, stages, traffic);
  const double busy = slowest(stages) * shape.micro_batches;
  return {silent->step_s - busy, whole->step_s - silent->step_s};
}

}  // namespace tutti::plan
