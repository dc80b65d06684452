#include "hand_over/flat_copy.hpp"

#include <fmt/format.h>

#include <chrono>
#include <cstdlib>
#include <cstring>
#include <thread>

namespace tutti::hand_over {
namespace {

constexpr std::size_t kArrayAlignment = 64;
// How long the last of it waits to be freed, and how often it looks.
constexpr auto kQuietWithin = std::chrono::seconds(5);
constexpr auto kLookForQuietEvery = std::chrono::microseconds(100);

std::uint64_t device_address(const void* data) { return reinterpret_cast<std::uintptr_t>(data); }

Result<std::shared_ptr<std::byte>> array_on_host(std::size_t bytes) {
  std::shared_ptr<std::byte> array(
      static_cast<std::byte*>(std::aligned_alloc(kArrayAlignment, bytes)), &std::free);
  if (!array)
    return Status(Code::out_of_memory, fmt::format("no memory for {} bytes of weights", bytes));
  std::memset(array.get(), 0, bytes);
  return array;
}

}  // namespace

Result<Gpu> gpu_of(std::span<const train::NamedTensor> weights) {
  int found = -1;
  for (const train::NamedTensor& tensor : weights) {
    if (tensor.values.device != Device::cuda || tensor.values.count == 0) continue;
    const auto ordinal = cuda::device_of(tensor.values.data);
    if (!ordinal.ok()) return ordinal.status();
    if (*ordinal < 0 || (found >= 0 && *ordinal != found))
      return Status(Code::invalid_argument,
                    *ordinal < 0
                        ? fmt::format("tensor '{}' is said to be on a GPU, but is not", tensor.name)
                        : fmt::format("tensor '{}' is on cuda:{}, others are on cuda:{}",
                                      tensor.name, *ordinal, found));
    found = *ordinal;
  }
  return found < 0 ? Result<Gpu>(nullptr) : cuda::Device::open(found);
}

void FreedLater::put(const Gpu& gpu, std::unique_ptr<cuda::Memory> memory) {
  kept_.emplace_back(gpu, std::move(memory));
  sweep();
}

void FreedLater::sweep() {
  std::erase_if(kept_, [](auto& entry) {
    return entry.first->traffic().while_quiet([&] { entry.second.reset(); });
  });
}

FreedLater::~FreedLater() {
  const auto last = std::chrono::steady_clock::now() + kQuietWithin;
  for (sweep(); !kept_.empty() && std::chrono::steady_clock::now() < last; sweep())
    std::this_thread::sleep_for(kLookForQuietEvery);
  for (auto& entry : kept_) (void)entry.second.release();
}

Result<std::shared_ptr<std::byte>> FlatCopy::array_on(const Gpu& gpu, std::size_t bytes,
                                                      void* stream) const {
  auto memory = gpu->allocate(bytes);
  if (!memory.ok()) return memory.status();
  auto* owner = new cuda::Memory(*std::move(memory));
  std::shared_ptr<std::byte> array(reinterpret_cast<std::byte*>(owner->address()),
                                   [gpu, owner, freed = freed_](std::byte*) {
                                     freed->put(gpu, std::unique_ptr<cuda::Memory>(owner));
                                   });
  if (Status status = gpu->fill(owner->address(), 0, bytes, stream); !status.ok()) return status;
  return array;
}

bool FlatCopy::fits(const WeightLayout& layout, const Gpu& gpu) const {
  return memory_ && gpu_ == gpu && layout_hash_ == layout.hash && bytes_ == layout.bytes;
}

Status FlatCopy::prepare(const WeightLayout& layout, const Gpu& gpu, void* stream) {
  if (fits(layout, gpu)) return {};
  const std::size_t whole = (layout.bytes / kArrayAlignment + 1) * kArrayAlignment;  // never none
  tensors_.clear();
  memory_.reset();  // before there is more: weights may be large
  auto array = gpu ? array_on(gpu, whole, stream) : array_on_host(whole);
  if (!array.ok()) return array.status();
  memory_ = *std::move(array);
  gpu_ = gpu;
  bytes_ = layout.bytes;
  layout_hash_ = layout.hash;
  for (const TensorPlace& place : layout.places) {
    ConstBuffer values(memory_.get() + place.offset, place.count, place.dtype);
    values.device = gpu ? Device::cuda : Device::cpu;
    tensors_.push_back({place.name, place.shape, values});
  }
  return {};
}

Buffer FlatCopy::at(const WeightPiece& piece) const {
  return {memory_.get() + piece.offset, piece.bytes, Dtype::u8, gpu_ ? Device::cuda : Device::cpu};
}

Status FlatCopy::set(std::size_t i, const ConstBuffer& values, void* stream) {
  const ConstBuffer& place = tensors_[i].values;
  if (values.count == 0) return {};
  auto* to = static_cast<std::byte*>(const_cast<void*>(place.data));
  if (gpu_)
    return gpu_->copy(device_address(to), device_address(values.data), values.bytes(), stream);
  std::memcpy(to, values.data, values.bytes());
  return {};
}

}  // namespace tutti::hand_over
