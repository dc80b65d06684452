#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "pipeline/play.hpp"

namespace tutti::pipeline {
namespace {

bool is_duration(double seconds) { return std::isfinite(seconds) && seconds >= 0; }

Status check_durations(const PipelineShape& shape, const PipelineDurations& durations) {
  const std::size_t given = durations.places.size();
  if (given != 1 && given != static_cast<std::size_t>(shape.places()))
    return {Code::invalid_argument,
            fmt::format("durations of {} places for a pipeline that has {}; one stands for all",
                        given, shape.places())};
  const std::size_t boundaries = durations.boundaries_s.size();
  if (boundaries != 0 && boundaries + 1 != static_cast<std::size_t>(shape.places()))
    return {Code::invalid_argument,
            fmt::format("durations of {} boundaries for a pipeline that has {}", boundaries,
                        shape.places() - 1)};
  bool fine =
      is_duration(durations.transfer_s) &&
      std::all_of(durations.boundaries_s.begin(), durations.boundaries_s.end(), is_duration);
  for (const PlaceDurations& place : durations.places)
    fine = fine && is_duration(place.forward_s) && is_duration(place.backward_input_s) &&
           is_duration(place.backward_weight_s);
  if (!fine) return {Code::invalid_argument, "a duration is negative or not finite"};
  return {};
}

bool has_full_rounds(const PipelineShape& shape) {
  return shape.virtual_stages == 1 || shape.micro_batches % shape.stages == 0;
}

}  // namespace

double v1::PipelineTimeline::compute_s() const noexcept {
  return busy_s.empty() ? 0 : *std::max_element(busy_s.begin(), busy_s.end());
}

Result<PipelineTimeline> v1::simulate_pipeline(std::span<const PipelineProgram> programs,
                                               const PipelineDurations& durations) {
  if (programs.empty() || static_cast<int>(programs.size()) != programs.front().shape.stages)
    return Status(Code::invalid_argument, "a simulation needs the programs of all stages");
  if (Status status = check_durations(programs.front().shape, durations); !status.ok())
    return status;
  Playback playback(programs, durations);
  if (Status status = playback.play(); !status.ok()) return status;
  return playback.take();
}

std::optional<double> v1::uniform_bubble_s(PipelineKind kind, const PipelineShape& shape,
                                           const PlaceDurations& place) {
  const double others = shape.stages - 1;
  const bool full_rounds = has_full_rounds(shape);
  // Weights fill gaps as long as they are no longer than what leaves them.
  const bool fits = shape.micro_batches >= shape.stages &&
                    place.backward_weight_s <= place.forward_s &&
                    place.backward_weight_s <= place.backward_input_s;
  switch (kind) {
    case PipelineKind::gpipe:
    case PipelineKind::one_f_one_b: return others * place.all_s();
    case PipelineKind::interleaved:
      if (full_rounds) return others * place.all_s();
      return std::nullopt;
    case PipelineKind::zb_h1:
      if (fits)
        return others * (place.forward_s + place.backward_input_s - place.backward_weight_s);
      return std::nullopt;
    case PipelineKind::forward:
      if (full_rounds) return others * place.forward_s;
      return std::nullopt;
  }
  return std::nullopt;
}

std::optional<double> v1::uniform_exposed_messages(PipelineKind kind, const PipelineShape& shape) {
  const double p = shape.stages, m = shape.micro_batches;
  const double held_up = 2 * (p - 1 + std::floor((m - 1) * (p - 1) / p));
  if (!has_full_rounds(shape)) return std::nullopt;
  if (shape.stages == 1) return 0;
  switch (kind) {
    case PipelineKind::gpipe: return 2 * (p - 1);
    case PipelineKind::one_f_one_b: return held_up;
    case PipelineKind::interleaved:
      return shape.virtual_stages == 1 ? held_up : 2 * (shape.places() - 1.0);
    case PipelineKind::zb_h1: return std::min(held_up, 4 * (p - 1));
    case PipelineKind::forward:
      if (shape.virtual_stages == 1) return p - 1;
      return std::nullopt;
  }
  return std::nullopt;
}

}  // namespace tutti::pipeline
