// apps/pretrain_gpt/device.hpp - where this rank computes: the CPU, or a CUDA device that torch knows.
#pragma once

#include <cstdint>
#include <optional>

#include "flags.hpp"
#include "tutti/status.hpp"

namespace c10 {
struct Device;
}

namespace pretrain {

// invalid_argument: --device cuda, and this torch has no CUDA or finds no GPU. Else it becomes this thread's
// device: ranks of a host take its GPUs in turn.
tutti::Status choose_device(const Flags& flags);
// The one that was chosen.
c10::Device device_of(const Flags& flags);

// Bytes that torch has taken of it at most since then: activations and what comes and goes with them. The
// layer's memory is not torch's. Absent: the CPU, or this torch does not count.
void reset_peak_memory(const Flags& flags);
std::optional<std::int64_t> peak_memory(const Flags& flags);

}  // namespace pretrain
