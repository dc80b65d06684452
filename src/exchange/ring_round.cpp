#include "exchange/ring_round.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "exchange/ended_group.hpp"
#include "reduce/fold.hpp"

namespace tutti::exchange {

namespace {

std::size_t most_rows(const RingCall& call) {
  return *std::max_element(call.counts.begin(), call.counts.end());
}

std::uint32_t tag_of(std::uint32_t kind, std::size_t array) {
  return kFirstRingTag + kind * 0x10000 + static_cast<std::uint32_t>(array);
}

}  // namespace

RingRound::RingRound(const RingCall& call)
    : call_(call),
      shape_(call.shape),
      meter_(call.options.device, call.call.stream),
      own_{call.block, nullptr, true},
      sum_{call.gradients, nullptr, true} {}

std::size_t RingRound::slot_bytes(const RingCall& call) {
  if (call.shape.size == 1) return 0;
  const bool two_levels = call.shape.windows() > 1;
  const std::size_t rows = most_rows(call);
  return bytes_of(call.block, rows) * (two_levels ? 4 : 2) +
         bytes_of(call.gradients, rows) * (two_levels ? 6 : 3);
}

void RingRound::lay_out(std::byte* slots) {
  const std::size_t rows = most_rows(call_);
  const auto place = [&](Slot& slot, std::span<const RingArray> arrays) {
    slot = {arrays, slots, false};
    slots += bytes_of(arrays, rows);
  };
  const bool two_levels = shape_.windows() > 1;
  for (Slot& slot : inner_) place(slot, call_.block);
  for (Slot& slot : part_) place(slot, call_.gradients);
  place(incoming_, call_.gradients);
  if (!two_levels) return;
  for (Slot& slot : outer_) place(slot, call_.block);
  for (Slot& slot : round_sum_) place(slot, call_.gradients);
  place(outer_incoming_, call_.gradients);
}

std::vector<Buffer> RingRound::buffers(const Slot& slot, int source) const {
  const std::size_t rows = call_.counts[static_cast<std::size_t>(source)];
  if (!slot.own) return arrays_in(slot.arrays, slot.memory, rows, call_.options.device);
  std::vector<Buffer> list;
  for (const RingArray& array : slot.arrays)
    list.push_back({array.data, rows * array.row, array.dtype, call_.options.device});
  return list;
}

std::optional<RingRound::Hop> RingRound::start(HopKind kind, const Slot& out, int out_source,
                                               const Slot& in, int in_source) {
  const bool inner = kind == HopKind::inner_block || kind == HopKind::inner_gradient;
  const int next = inner ? shape_.inner_next() : shape_.outer_next();
  const int previous = inner ? shape_.inner_previous() : shape_.outer_previous();
  std::vector<Transfer> transfers;
  const auto list = [&](Transfer::Kind way, const Slot& slot, int source, int peer) {
    const auto arrays = buffers(slot, source);
    for (std::size_t i = 0; i < arrays.size(); ++i)
      if (arrays[i].count > 0)
        transfers.push_back({way, arrays[i], peer, tag_of(static_cast<std::uint32_t>(kind), i)});
  };
  list(Transfer::Kind::recv, in, in_source, previous);
  list(Transfer::Kind::send, out, out_source, next);
  if (transfers.empty()) return Hop{meter_.follow(Work()), in_source, previous};
  return Hop{meter_.follow(call_.group.transfer(transfers, call_.call)), in_source, previous};
}

Status RingRound::wait(const std::optional<Hop>& hop, const char* what) {
  if (!hop) return {};
  return meter_.wait(hop->trip).annotate(fmt::format(
      "ring exchange, {} of rank {} that comes from rank {}", what, hop->source, hop->peer));
}

void RingRound::add(const Slot& into, const Slot& from, int source) {
  const auto sums = buffers(into, source), parts = buffers(from, source);
  for (std::size_t i = 0; i < sums.size(); ++i) {
    if (call_.options.add) {
      call_.options.add(sums[i], parts[i]);
      continue;
    }
    // What came was visited earlier, and stands first.
    const reduce::Operand operands[] = {{parts[i].data, false}, {sums[i].data, false}};
    reduce::fold({sums[i].dtype, ReduceOp::sum}, sums[i].data, operands, sums[i].count);
  }
}

Status RingRound::run(std::byte* slots) {
  if (shape_.size > 1) lay_out(slots);
  held_ = own_;
  for (int round = 0; round < shape_.windows(); ++round) {
    std::optional<Hop> outer;
    if (round + 1 < shape_.windows())
      outer = start(HopKind::outer_block, held_, shape_.source(round, 0), outer_[round % 2],
                    shape_.source(round + 1, 0));
    if (Status status = visit_round(round); !status.ok()) return status;
    if (Status status = wait(outer, "the block"); !status.ok()) return status;
    held_ = outer_[round % 2];
  }
  return end_gradients();
}

Status RingRound::visit_round(int round) {
  Slot block = held_;
  for (int turn = 0; turn < shape_.window; ++turn) {
    std::optional<Hop> inner;
    if (turn + 1 < shape_.window)
      inner = start(HopKind::inner_block, block, shape_.source(round, turn), inner_[turn % 2],
                    shape_.source(round, turn + 1));
    if (Status status = visit(round, turn, block); !status.ok()) return status;
    if (Status status = wait(inner, "the block"); !status.ok()) return status;
    block = inner_[turn % 2];
  }
  return {};
}

Status RingRound::visit(int round, int turn, const Slot& block) {
  const int source = shape_.source(round, turn);
  const int number = round * shape_.window + turn;
  const auto arrays = buffers(block, source);
  std::vector<Buffer> gradient;
  if (!call_.gradients.empty())
    gradient = buffers(shape_.size == 1 ? sum_ : part_[number % 2], source);
  if (Status status = call_.compute({number, source, arrays, gradient}); !status.ok()) {
    end_group(call_.group, status);
    return status;
  }
  return call_.gradients.empty() || shape_.size == 1 ? Status() : pass_gradient(round, turn);
}

Status RingRound::pass_gradient(int round, int turn) {
  const Slot& part = part_[(round * shape_.window + turn) % 2];
  const int source = shape_.source(round, turn);
  if (turn > 0) {
    if (Status status = wait(inner_gradient_, "the gradient"); !status.ok()) return status;
    add(part, incoming_, source);
  } else if (round > 0) {
    if (Status status = end_round(round - 1); !status.ok()) return status;
  }
  const bool last = turn + 1 == shape_.window;
  const Slot& round_sum = shape_.windows() == 1 ? sum_ : round_sum_[round % 2];
  inner_gradient_ = start(HopKind::inner_gradient, part, source, last ? round_sum : incoming_,
                          shape_.source(round, turn + 1));
  return {};
}

// The sum over this window has come to where the block came in: with that of the windows before it goes on.
Status RingRound::end_round(int round) {
  const Slot& sum = round_sum_[round % 2];
  const int source = shape_.source(round, 0);
  if (Status status = wait(inner_gradient_, "the gradient"); !status.ok()) return status;
  if (round > 0) {
    if (Status status = wait(outer_gradient_, "the gradient"); !status.ok()) return status;
    add(sum, outer_incoming_, source);
  }
  const bool last = round + 1 == shape_.windows();
  outer_gradient_ = start(HopKind::outer_gradient, sum, source, last ? sum_ : outer_incoming_,
                          shape_.source(round + 1, 0));
  return {};
}

Status RingRound::end_gradients() {
  if (call_.gradients.empty() || shape_.size == 1) return {};
  if (shape_.windows() == 1) return wait(inner_gradient_, "the gradient");
  if (Status status = end_round(shape_.windows() - 1); !status.ok()) return status;
  return wait(outer_gradient_, "the gradient");
}

}  // namespace tutti::exchange
