// apps/pretrain_gpt/torch_memory.hpp - what torch takes of the device's memory: activations, and what comes and goes
// with them. The layer's memory (weights, gradients, the optimizer's state) is not torch's.
//
// Thread-safety  of one thread: on the CPU what its own work takes counts, autograd's included.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>

#include "flags.hpp"

namespace pretrain {

class TorchMemory {
 public:
  // On the CPU counting begins here, and ends with this object: before anything that is freed while it lives.
  explicit TorchMemory(const Flags& flags);
  ~TorchMemory();
  TorchMemory(const TorchMemory&) = delete;
  TorchMemory& operator=(const TorchMemory&) = delete;

  void forget_peak();
  // Bytes, at most, since then; absent: this torch does not count on that device.
  std::optional<std::int64_t> peak() const;

 private:
  struct Counting;
  std::unique_ptr<Counting> counting_;  // on the CPU
  Flags flags_;
};

}  // namespace pretrain
