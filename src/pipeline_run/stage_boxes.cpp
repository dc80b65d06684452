#include "pipeline_run/stage_boxes.hpp"

#include <algorithm>
#include <cstring>
#include <new>

#include "pipeline/held_inputs.hpp"
#include "pipeline/neighbours.hpp"

namespace tutti::pipeline {
namespace {

using Kind = PipelineOpKind;

constexpr int kOutgoingSlots = 2;  // one is filled while the other is on its way

std::shared_ptr<std::byte> own_memory(std::size_t bytes) {
  constexpr std::align_val_t kPage{4096};
  const auto free = [](std::byte* memory) { ::operator delete(memory, kPage); };
  std::shared_ptr<std::byte> memory(static_cast<std::byte*>(::operator new(bytes, kPage)), free);
  std::memset(memory.get(), 0, bytes);  // its pages are there before the first step
  return memory;
}

class BoxMaker {
 public:
  BoxMaker(Group& group, const PipelineProgram& program,
           const std::vector<std::vector<BoundaryTensor>>& boundaries,
           std::chrono::nanoseconds timeout)
      : group_(group), program_(program), boundaries_(boundaries), timeout_(timeout) {}

  Result<RankBoxes> make() {
    if (program_.shape.stages > 1) {
      auto memory = group_.allocate(most_outgoing());
      if (!memory.ok()) return memory.status();
      boxes_.outgoing = *std::move(memory);
      boxes_.bytes += boxes_.outgoing.bytes;
    }
    const std::vector<HeldInputs> held = held_inputs(program_);
    for (int stage = 0; stage < program_.shape.virtual_stages; ++stage) {
      StageBoxes boxes;
      const HeldInputs& each = held[static_cast<std::size_t>(stage)];
      add(boxes.activations_in, stage, Kind::recv_activation, each.activations);
      add(boxes.gradients_in, stage, Kind::recv_gradient, each.gradients);
      add(boxes.activations_out, stage, Kind::send_activation);
      add(boxes.gradients_out, stage, Kind::send_gradient);
      boxes_.stages.push_back(std::move(boxes));
    }
    return std::move(boxes_);
  }

 private:
  const PipelineShape& shape() const { return program_.shape; }
  bool exists(Kind kind) const {
    const bool is_gradient = kind == Kind::send_gradient || kind == Kind::recv_gradient;
    return !is_gradient || program_.kind != PipelineKind::forward;
  }
  // Boundary b lies between places b and b + 1.
  int boundary_of(int rank, int stage, Kind kind) const {
    const bool is_before = kind == Kind::recv_activation || kind == Kind::send_gradient;
    return shape().place(rank, stage) - (is_before ? 1 : 0);
  }
  SlotLayout layout_of(int boundary) const {
    return SlotLayout(
        boundaries_[boundaries_.size() == 1 ? 0 : static_cast<std::size_t>(boundary)]);
  }

  // All ranks take as much as the one that needs most: what it is, each of them can tell.
  std::size_t most_outgoing() const {
    std::size_t most = 0;
    for (int rank = 0; rank < shape().stages; ++rank) {
      std::size_t bytes = 0;
      for (int stage = 0; stage < shape().virtual_stages; ++stage)
        for (const Kind kind : {Kind::send_activation, Kind::send_gradient})
          if (exists(kind) && peer_of(kind, shape(), rank, stage) != kNobody)
            bytes += kOutgoingSlots * layout_of(boundary_of(rank, stage, kind)).slot_bytes();
      most = std::max(most, bytes);
    }
    return most;
  }

  BoxRoute route(int stage, Kind kind) const {
    const int peer = peer_of(kind, shape(), program_.rank, stage);
    if (peer == kNobody) return {};
    BoxRoute route{&group_, peer};
    const bool is_gradient = kind == Kind::send_gradient || kind == Kind::recv_gradient;
    const int boundary = boundary_of(program_.rank, stage, kind);
    route.tag = static_cast<std::uint32_t>(2 * boundary + (is_gradient ? 1 : 0));
    route.options.timeout = timeout_;
    return route;
  }

  // One slot more than is held, so that a receive is posted while all others are in use.
  void add(std::optional<ReceiveBox>& box, int stage, Kind kind, int held) {
    if (held == 0) return;
    const SlotLayout layout = layout_of(boundary_of(program_.rank, stage, kind));
    const BoxRoute way = route(stage, kind);
    const int slots = std::min(shape().micro_batches, held + (way.group != nullptr ? 1 : 0));
    const std::size_t bytes = static_cast<std::size_t>(slots) * layout.slot_bytes();
    boxes_.bytes += bytes;
    box.emplace(layout, slots, own_memory(bytes), way);
  }

  void add(std::optional<SendBox>& box, int stage, Kind kind) {
    const BoxRoute way = route(stage, kind);
    if (way.group == nullptr || !exists(kind)) return;
    const SlotLayout layout = layout_of(boundary_of(program_.rank, stage, kind));
    std::shared_ptr<std::byte> memory(boxes_.outgoing.owner,
                                      static_cast<std::byte*>(boxes_.outgoing.data) + used_);
    used_ += kOutgoingSlots * layout.slot_bytes();
    box.emplace(layout, kOutgoingSlots, std::move(memory), way);
  }

  Group& group_;
  const PipelineProgram& program_;
  const std::vector<std::vector<BoundaryTensor>>& boundaries_;
  std::chrono::nanoseconds timeout_;
  std::size_t used_ = 0;  // of what leaves
  RankBoxes boxes_;
};

}  // namespace

Result<RankBoxes> make_boxes(Group& group, const PipelineProgram& program,
                             const std::vector<std::vector<BoundaryTensor>>& boundaries,
                             std::chrono::nanoseconds timeout) {
  return BoxMaker(group, program, boundaries, timeout).make();
}

}  // namespace tutti::pipeline
