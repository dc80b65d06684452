#include "pipeline/build/draft.hpp"

#include <algorithm>

#include "pipeline/neighbours.hpp"

namespace tutti::pipeline::builders {
PipelineProgram ProgramDraft::take() {
  std::size_t received = next_to_receive(0);
  if (received < turns_.size()) add_receives(turns_[received]);
  for (std::size_t at = 0; at < turns_.size(); ++at) {
    ++batch_;
    for (const ComputeOp& op : turns_[at])
      if (op.micro_batch < program_.shape.micro_batches)
        program_.ops.push_back({op.kind, op.micro_batch, op.virtual_stage});
    for (const ComputeOp& op : turns_[at]) add(op, sent_after(op.kind));
    if (received > at) continue;
    received = next_to_receive(at + 1);
    if (received < turns_.size()) add_receives(turns_[received]);
  }
  return std::move(program_);
}

int ProgramDraft::peer_for(const ComputeOp& op, std::optional<PipelineOpKind> transfer) const {
  if (!transfer) return kNobody;
  return peer_of(*transfer, program_.shape, program_.rank, op.virtual_stage);
}

bool ProgramDraft::transfers(const Turn& turn) const {
  return std::any_of(turn.begin(), turn.end(), [&](const ComputeOp& op) {
    return peer_for(op, received_for(op.kind)) != kNobody ||
           peer_for(op, sent_after(op.kind)) != kNobody;
  });
}

// Past a turn that neither sends nor receives one may look ahead: whoever sends what is received
// behind it need not wait for that turn.
std::size_t ProgramDraft::next_to_receive(std::size_t at) const {
  while (at < turns_.size() && !transfers(turns_[at])) ++at;
  return at;
}

void ProgramDraft::add(const ComputeOp& op, std::optional<PipelineOpKind> transfer) {
  const int peer = peer_for(op, transfer);
  if (peer == kNobody || op.micro_batch >= program_.shape.micro_batches) return;
  program_.ops.push_back({*transfer, op.micro_batch, op.virtual_stage, peer, batch_});
}

void ProgramDraft::add_receives(const Turn& turn) {
  for (const ComputeOp& op : turn) add(op, received_for(op.kind));
}

}  // namespace tutti::pipeline::builders
