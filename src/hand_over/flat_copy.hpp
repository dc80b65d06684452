// hand_over/flat_copy.hpp - one flat array with all tensors of a version in it, on the host or on a GPU.
//
// Thread-safety  none.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <utility>
#include <vector>

#include "cuda/device.hpp"
#include "hand_over/weight_layout.hpp"
#include "tutti/status.hpp"

namespace tutti::hand_over {

// Null: weights are in CPU memory, or there are none.
using Gpu = std::shared_ptr<cuda::Device>;
// The one that all of them are on; invalid_argument names a tensor that is not.
Result<Gpu> gpu_of(std::span<const train::NamedTensor> weights);

// Memory of GPUs that is to be freed. That waits for every stream of the process, and holds up calls of its
// other threads meanwhile: while something waits there for another rank it might keep that one waiting.
class FreedLater {
 public:
  // Waits for a quiet moment, for some seconds; what finds none stays with the process.
  ~FreedLater();
  void put(const Gpu& gpu, std::unique_ptr<cuda::Memory> memory);
  // Frees what can be freed now. Does not wait.
  void sweep();

 private:
  std::vector<std::pair<Gpu, std::unique_ptr<cuda::Memory>>> kept_;
};

class FlatCopy {
 public:
  explicit FlatCopy(std::shared_ptr<FreedLater> freed) : freed_(std::move(freed)) {}
  // Memory for this layout, zeroed; on a GPU when `stream` comes to it. Kept where layout and place are those
  // of before.
  Status prepare(const WeightLayout& layout, const Gpu& gpu = nullptr, void* stream = nullptr);
  bool fits(const WeightLayout& layout, const Gpu& gpu) const;
  std::byte* data() const { return memory_.get(); }
  std::size_t bytes() const { return bytes_; }
  const Gpu& gpu() const { return gpu_; }
  std::span<const train::NamedTensor> tensors() const { return tensors_; }
  Buffer at(const WeightPiece& piece) const;
  // Tensor i takes these values; on a GPU when `stream` comes to it.
  Status set(std::size_t i, const ConstBuffer& values, void* stream);

 private:
  Result<std::shared_ptr<std::byte>> array_on(const Gpu& gpu, std::size_t bytes,
                                              void* stream) const;

  std::shared_ptr<FreedLater> freed_;
  std::shared_ptr<std::byte> memory_;
  Gpu gpu_;
  std::size_t bytes_ = 0;
  std::uint64_t layout_hash_ = 0;
  std::vector<train::NamedTensor> tensors_;
};

}  // namespace tutti::hand_over
