// apps/pretrain_gpt/device.hpp - where this rank computes: the CPU, or a CUDA device that torch knows.
#pragma once

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

// How many ranks compute on it; on the CPU each has its own.
int ranks_on_device(const Flags& flags);

}  // namespace pretrain
