#include "pipeline/play.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <limits>
#include <utility>

#include "pipeline/neighbours.hpp"

namespace tutti::pipeline {
namespace {

constexpr double kUnknown = std::numeric_limits<double>::infinity();

std::size_t product(int a, int b, int c) {
  return static_cast<std::size_t>(a) * static_cast<std::size_t>(b) * static_cast<std::size_t>(c);
}

}  // namespace

Playback::Playback(std::span<const PipelineProgram> programs, const PipelineDurations& durations)
    : programs_(programs),
      durations_(durations),
      cursors_(programs.size()),
      arrivals_(product(2, shape().places(), shape().micro_batches), kUnknown),
      posted_(product(kPipelineOpKinds, shape().places(), shape().micro_batches), kUnknown),
      link_free_(programs.size() * programs.size(), 0.0) {
  timeline_.ranks.resize(programs.size());
  timeline_.busy_s.assign(programs.size(), 0.0);
}

Status Playback::play() {
  for (bool moved = true; moved;) {
    moved = false;
    for (int rank = 0; rank < shape().stages; ++rank)
      while (advance(rank)) moved = true;
  }
  if (const std::string who = stuck(); !who.empty())
    return {Code::internal, "nobody can go on: " + who};
  for (const Cursor& cursor : cursors_) timeline_.step_s = std::max(timeline_.step_s, cursor.time);
  return {};
}

// One op, or one batch. False: it is over, or has to wait.
bool Playback::advance(int rank) {
  Cursor& cursor = cursors_[static_cast<std::size_t>(rank)];
  const auto& ops = programs_[static_cast<std::size_t>(rank)].ops;
  if (cursor.at == ops.size()) return false;
  const PipelineOp& op = ops[cursor.at];
  if (!is_transfer(op.kind)) return compute(rank, op);
  if (!durations_.overlap) return meet(rank);
  cursor.at = end_of_batch(rank);  // its messages have left when they were computed
  return true;
}

bool Playback::compute(int rank, const PipelineOp& op) {
  Cursor& cursor = cursors_[static_cast<std::size_t>(rank)];
  const auto received = received_for(op.kind);
  double begin = cursor.time;
  if (received && peer_of(*received, shape(), rank, op.virtual_stage) != kNobody) {
    const double there = arrival(*received, shape().place(rank, op.virtual_stage), op.micro_batch);
    if (there == kUnknown) return false;
    begin = std::max(begin, there);
  }
  const double end = begin + duration(rank, op);
  timeline_.ranks[static_cast<std::size_t>(rank)].push_back(
      {op.kind, op.micro_batch, op.virtual_stage, begin, end});
  timeline_.busy_s[static_cast<std::size_t>(rank)] += end - begin;
  cursor.time = end;
  ++cursor.at;
  if (durations_.overlap) hand_on(rank, op, end);
  return true;
}

// What was computed leaves at once, behind what is on its way to the same rank already.
void Playback::hand_on(int rank, const PipelineOp& op, double done) {
  const auto sent = sent_after(op.kind);
  const int peer = sent ? peer_of(*sent, shape(), rank, op.virtual_stage) : kNobody;
  if (peer == kNobody) return;
  double& link = link_free_[static_cast<std::size_t>(rank * shape().stages + peer)];
  link = std::max(link, done) + transfer(rank, *sent, op.virtual_stage);
  const int place = shape().place(rank, op.virtual_stage);
  if (sent == PipelineOpKind::send_activation)
    arrival(PipelineOpKind::recv_activation, place + 1, op.micro_batch) = link;
  else
    arrival(PipelineOpKind::recv_gradient, place - 1, op.micro_batch) = link;
}

// The strict reading: the rank stops until the others have come to all that its batch needs of them.
bool Playback::meet(int rank) {
  Cursor& cursor = cursors_[static_cast<std::size_t>(rank)];
  const auto& ops = programs_[static_cast<std::size_t>(rank)].ops;
  const std::size_t end = end_of_batch(rank);
  const bool first_look = !std::exchange(cursor.posted, true);
  double over = cursor.time;
  for (std::size_t i = cursor.at; first_look && i < end; ++i) posted(rank, ops[i]) = cursor.time;
  for (std::size_t i = cursor.at; i < end; ++i) {
    const double theirs = posted_by_peer(rank, ops[i]);
    if (theirs == kUnknown) return first_look;  // others may go on now
    over = std::max(
        over, std::max(theirs, cursor.time) + transfer(rank, ops[i].kind, ops[i].virtual_stage));
  }
  for (std::size_t i = cursor.at; i < end; ++i)
    if (ops[i].kind == PipelineOpKind::recv_activation ||
        ops[i].kind == PipelineOpKind::recv_gradient)
      arrival(ops[i].kind, shape().place(rank, ops[i].virtual_stage), ops[i].micro_batch) = over;
  cursor = {end, over, false};
  return true;
}

std::size_t Playback::end_of_batch(int rank) const {
  const auto& ops = programs_[static_cast<std::size_t>(rank)].ops;
  const std::size_t first = cursors_[static_cast<std::size_t>(rank)].at;
  std::size_t end = first;
  while (end < ops.size() && is_transfer(ops[end].kind) && ops[end].batch == ops[first].batch)
    ++end;
  return end;
}

double Playback::duration(int rank, const PipelineOp& op) const {
  const auto place = static_cast<std::size_t>(shape().place(rank, op.virtual_stage));
  const PlaceDurations& each = durations_.places[durations_.places.size() == 1 ? 0 : place];
  switch (op.kind) {
    case PipelineOpKind::forward: return each.forward_s;
    case PipelineOpKind::backward: return each.backward_input_s + each.backward_weight_s;
    case PipelineOpKind::backward_input: return each.backward_input_s;
    case PipelineOpKind::backward_weight: return each.backward_weight_s;
    case PipelineOpKind::send_activation:
    case PipelineOpKind::recv_activation:
    case PipelineOpKind::send_gradient:
    case PipelineOpKind::recv_gradient: break;
  }
  return transfer(rank, op.kind, op.virtual_stage);
}

// A place has one boundary behind it, which activations leave by and gradients come in, and one before it.
double Playback::transfer(int rank, PipelineOpKind kind, int virtual_stage) const {
  if (durations_.boundaries_s.empty()) return durations_.transfer_s;
  const int place = shape().place(rank, virtual_stage);
  const bool behind =
      kind == PipelineOpKind::send_activation || kind == PipelineOpKind::recv_gradient;
  return durations_.boundaries_s[static_cast<std::size_t>(behind ? place : place - 1)];
}

double& Playback::arrival(PipelineOpKind received, int place, int micro_batch) {
  const int side = received == PipelineOpKind::recv_activation ? 0 : 1;
  return arrivals_[product(side * shape().places() + place, shape().micro_batches, 1) +
                   static_cast<std::size_t>(micro_batch)];
}

double& Playback::posted(int rank, const PipelineOp& op) {
  const int place = shape().place(rank, op.virtual_stage);
  return posted_[product(static_cast<int>(op.kind) * shape().places() + place,
                         shape().micro_batches, 1) +
                 static_cast<std::size_t>(op.micro_batch)];
}

double Playback::posted_by_peer(int rank, const PipelineOp& op) {
  const auto mirrored = [&](PipelineOpKind kind, int step) {
    const int place = shape().place(rank, op.virtual_stage) + step;
    return posted(shape().rank_of(place), {kind, op.micro_batch, shape().virtual_stage_of(place)});
  };
  switch (op.kind) {
    case PipelineOpKind::send_activation: return mirrored(PipelineOpKind::recv_activation, 1);
    case PipelineOpKind::recv_activation: return mirrored(PipelineOpKind::send_activation, -1);
    case PipelineOpKind::send_gradient: return mirrored(PipelineOpKind::recv_gradient, -1);
    case PipelineOpKind::recv_gradient: return mirrored(PipelineOpKind::send_gradient, 1);
    case PipelineOpKind::forward:
    case PipelineOpKind::backward:
    case PipelineOpKind::backward_input:
    case PipelineOpKind::backward_weight: break;
  }
  return 0;
}

std::string Playback::stuck() const {
  std::string who;
  for (std::size_t rank = 0; rank < programs_.size(); ++rank) {
    const auto& ops = programs_[rank].ops;
    if (cursors_[rank].at == ops.size()) continue;
    who += fmt::format("{}stage {} waits in op {} ({})", who.empty() ? "" : ", ", rank,
                       cursors_[rank].at, describe(ops[cursors_[rank].at]));
  }
  return who;
}

}  // namespace tutti::pipeline
