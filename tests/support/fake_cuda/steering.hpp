// fake_cuda/steering.hpp - what the environment asks of the emulated driver; read once per process.
#pragma once

#include <cstddef>
#include <string>

namespace fake_cuda {

struct Steering {
  int devices = 1;                  // FAKE_CUDA_DEVICES; 0: cuInit says that there is none
  std::size_t memory = 1ULL << 30;  // FAKE_CUDA_MEMORY: bytes of each device
  int channels = 0;     // FAKE_CUDA_CHANNELS: queues that streams share; 0: each its own
  bool no_ipc = false;  // FAKE_CUDA_NO_IPC
  bool no_memory_operations = false;  // FAKE_CUDA_NO_MEMOPS
  bool under_mps = false;             // FAKE_CUDA_MPS
  bool no_peers = false;              // FAKE_CUDA_NO_PEERS: devices cannot reach each other
  bool held_by_copies = false;        // FAKE_CUDA_HELD_BY_COPIES
  long late_ms = 0;                   // FAKE_CUDA_LATE: after that a new stream begins to work
  long break_after = 0;         // FAKE_CUDA_BREAK_AFTER: calls until the context is lost; 0: never
  std::string time_slice_lock;  // FAKE_CUDA_TIME_SLICED: a file; who runs a kernel holds its lock
};
const Steering& steering();

}  // namespace fake_cuda
