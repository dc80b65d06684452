// pipeline_run/boxes.hpp - where activations and gradients lie on their way through a rank.
//
// A virtual stage has a box to receive and one to send, for activations and for gradients. A box is a
// ring of slots; micro-batch i has slot i mod n, because they come and go in their order:
//
//   receive  ┌──────┬──────┬──────┬──────┐   posted − freed ≤ slots: a receive is posted as soon as
//            │ in   │ in   │ there│posted│   the slot's last micro-batch was computed to its end
//            │ use  │ use  │      │      │
//            └──────┴──────┴──────┴──────┘
//   send     two slots: one is filled while the other is on its way
//
// A slot holds the boundary's tensors, and behind them when it was sent, by the sender's clock: so a
// receiver knows what of its waiting was the neighbour's and what the wire's.
//
// Thread-safety  none.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "tutti/group.hpp"
#include "tutti/pipeline/run.hpp"

namespace tutti::pipeline {

// How the tensors of a boundary lie in a slot.
class SlotLayout {
 public:
  explicit SlotLayout(std::span<const BoundaryTensor> tensors);

  std::vector<Buffer> buffers(std::byte* slot) const;
  std::size_t message_bytes() const { return stamp_at_ + sizeof(std::int64_t); }
  std::size_t slot_bytes() const;
  std::int64_t stamp(const std::byte* slot) const;
  void set_stamp(std::byte* slot, std::int64_t ns) const;

 private:
  std::vector<BoundaryTensor> tensors_;
  std::size_t stamp_at_ = 0;
};

// How a box's messages travel.
struct BoxRoute {
  Group* group = nullptr;  // null: within this rank, they do not
  int peer = -1;
  std::uint32_t tag = 0;
  CallOptions options{};
};

// A ring of slots, and what is under way in each.
class Box {
 public:
  // `memory` has slots · layout.slot_bytes() bytes.
  Box(SlotLayout layout, int slots, std::shared_ptr<std::byte> memory, BoxRoute route);

  int slots() const { return static_cast<int>(buffers_.size()); }
  int peer() const { return route_.peer; }
  std::span<const Buffer> buffers(int micro_batch) const { return buffers_[at(micro_batch)]; }
  // The last transfer of a micro-batch's slot; done where nothing travels.
  Work& work(int micro_batch) { return works_[at(micro_batch)]; }
  // Until nothing is under way, whatever became of it.
  void drain();

 protected:
  void transfer(Transfer::Kind kind, int micro_batch);
  bool travels() const { return route_.group != nullptr; }
  const SlotLayout& layout() const { return layout_; }
  std::byte* slot(int micro_batch) const {
    return memory_.get() + at(micro_batch) * layout_.slot_bytes();
  }

 private:
  std::size_t at(int micro_batch) const {
    return static_cast<std::size_t>(micro_batch) % buffers_.size();
  }

  SlotLayout layout_;
  std::shared_ptr<std::byte> memory_;
  BoxRoute route_;
  std::vector<std::vector<Buffer>> buffers_;  // by slot
  std::vector<Work> works_;                   // by slot
};

class ReceiveBox : public Box {
 public:
  using Box::Box;

  void begin_step() { posted_ = freed_ = 0; }
  // Posts what there is room for, of `micro_batches` in all.
  void post(int micro_batches);
  void free(int micro_batch) { freed_ = micro_batch + 1; }
  // When it was sent, by the sender's clock.
  std::int64_t stamp(int micro_batch) const { return layout().stamp(slot(micro_batch)); }

 private:
  int posted_ = 0;
  int freed_ = 0;
};

class SendBox : public Box {
 public:
  using Box::Box;

  // The slot's last transfer is over.
  void send(int micro_batch, std::int64_t now_ns);
};

}  // namespace tutti::pipeline
