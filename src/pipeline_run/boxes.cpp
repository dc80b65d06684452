#include "pipeline_run/boxes.hpp"

#include <cstring>

namespace tutti::pipeline {
namespace {

constexpr std::size_t kAlignment = 64;

std::size_t aligned(std::size_t bytes) {
  return (bytes + kAlignment - 1) / kAlignment * kAlignment;
}

}  // namespace

// ---- slots

SlotLayout::SlotLayout(std::span<const BoundaryTensor> tensors)
    : tensors_(tensors.begin(), tensors.end()) {
  for (const BoundaryTensor& tensor : tensors_)
    stamp_at_ += aligned(tensor.count * size_of(tensor.dtype));
}

std::size_t SlotLayout::slot_bytes() const { return aligned(message_bytes()); }

std::vector<Buffer> SlotLayout::buffers(std::byte* slot) const {
  std::vector<Buffer> buffers;
  for (const BoundaryTensor& tensor : tensors_) {
    buffers.push_back({slot, tensor.count, tensor.dtype});
    slot += aligned(buffers.back().bytes());
  }
  return buffers;
}

std::int64_t SlotLayout::stamp(const std::byte* slot) const {
  std::int64_t ns = 0;
  std::memcpy(&ns, slot + stamp_at_, sizeof ns);
  return ns;
}

void SlotLayout::set_stamp(std::byte* slot, std::int64_t ns) const {
  std::memcpy(slot + stamp_at_, &ns, sizeof ns);
}

// ---- boxes

Box::Box(SlotLayout layout, int slots, std::shared_ptr<std::byte> memory, BoxRoute route)
    : layout_(std::move(layout)),
      memory_(std::move(memory)),
      route_(route),
      works_(static_cast<std::size_t>(slots)) {
  for (int i = 0; i < slots; ++i)
    buffers_.push_back(
        layout_.buffers(memory_.get() + static_cast<std::size_t>(i) * layout_.slot_bytes()));
}

void Box::transfer(Transfer::Kind kind, int micro_batch) {
  const Buffer message{slot(micro_batch), layout_.message_bytes(), Dtype::u8};
  const Transfer one{kind, message, route_.peer, route_.tag};
  work(micro_batch) = route_.group->transfer({&one, 1}, route_.options);
}

void Box::drain() {
  for (Work& work : works_) (void)work.wait();
}

void ReceiveBox::post(int micro_batches) {
  if (!travels()) return;
  for (; posted_ < micro_batches && posted_ - freed_ < slots(); ++posted_)
    transfer(Transfer::Kind::recv, posted_);
}

void SendBox::send(int micro_batch, std::int64_t now_ns) {
  layout().set_stamp(slot(micro_batch), now_ns);
  transfer(Transfer::Kind::send, micro_batch);
}

}  // namespace tutti::pipeline
