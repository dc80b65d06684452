// pipeline/neighbours.hpp - with whom a virtual stage exchanges activations and gradients.
#pragma once

#include <optional>

#include "tutti/pipeline/schedule.hpp"

namespace tutti::pipeline {

inline constexpr int kNobody = -1;

// The rank of the place before, or after, a rank's virtual stage; kNobody at the model's ends.
inline int rank_before(const PipelineShape& shape, int rank, int virtual_stage) {
  const int place = shape.place(rank, virtual_stage);
  return place == 0 ? kNobody : shape.rank_of(place - 1);
}
inline int rank_after(const PipelineShape& shape, int rank, int virtual_stage) {
  const int place = shape.place(rank, virtual_stage);
  return place + 1 == shape.places() ? kNobody : shape.rank_of(place + 1);
}

// Who is on the other side of such a transfer; kNobody: there is none, because the model ends there or
// because one rank holds both places.
inline int peer_of(PipelineOpKind transfer, const PipelineShape& shape, int rank,
                   int virtual_stage) {
  const bool with_place_before =
      transfer == PipelineOpKind::recv_activation || transfer == PipelineOpKind::send_gradient;
  const int peer = with_place_before ? rank_before(shape, rank, virtual_stage)
                                     : rank_after(shape, rank, virtual_stage);
  return peer == rank ? kNobody : peer;
}

// What a computing op has to receive first, and what it has to send afterwards, if its neighbour is on
// another rank. The weights' part of a backward has to do with nobody.
inline std::optional<PipelineOpKind> received_for(PipelineOpKind kind) {
  if (kind == PipelineOpKind::forward) return PipelineOpKind::recv_activation;
  if (kind == PipelineOpKind::backward || kind == PipelineOpKind::backward_input)
    return PipelineOpKind::recv_gradient;
  return std::nullopt;
}
inline std::optional<PipelineOpKind> sent_after(PipelineOpKind kind) {
  const auto received = received_for(kind);
  if (!received) return std::nullopt;
  return received == PipelineOpKind::recv_activation ? PipelineOpKind::send_activation
                                                     : PipelineOpKind::send_gradient;
}

}  // namespace tutti::pipeline
