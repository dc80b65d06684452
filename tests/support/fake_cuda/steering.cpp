#include "support/fake_cuda/steering.hpp"

#include <cstdlib>

namespace fake_cuda {
namespace {

long number(const char* name, long otherwise) {
  const char* text = std::getenv(name);
  return text == nullptr || *text == '\0' ? otherwise : std::strtol(text, nullptr, 10);
}

Steering read() {
  Steering steering;
  steering.devices = static_cast<int>(number("FAKE_CUDA_DEVICES", steering.devices));
  steering.memory = static_cast<std::size_t>(number("FAKE_CUDA_MEMORY", 1L << 30));
  steering.channels = static_cast<int>(number("FAKE_CUDA_CHANNELS", 0));
  steering.no_ipc = number("FAKE_CUDA_NO_IPC", 0) != 0;
  steering.no_memory_operations = number("FAKE_CUDA_NO_MEMOPS", 0) != 0;
  steering.under_mps = number("FAKE_CUDA_MPS", 0) != 0;
  steering.no_peers = number("FAKE_CUDA_NO_PEERS", 0) != 0;
  steering.held_by_copies = number("FAKE_CUDA_HELD_BY_COPIES", 0) != 0;
  steering.late_ms = number("FAKE_CUDA_LATE", 0);
  steering.break_after = number("FAKE_CUDA_BREAK_AFTER", 0);
  if (const char* path = std::getenv("FAKE_CUDA_TIME_SLICED")) steering.time_slice_lock = path;
  return steering;
}

}  // namespace

const Steering& steering() {
  static const Steering kSteering = read();
  return kSteering;
}

}  // namespace fake_cuda
