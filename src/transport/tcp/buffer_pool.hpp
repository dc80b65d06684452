// transport/tcp/buffer_pool.hpp - memory for payloads that came before anybody said where to put them.
//
// Thread-safety  take by the reader; release by any thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "transport/spin_lock.hpp"

namespace tutti::transport {

class BufferPool {
 public:
  struct Buffer {
    std::byte* data = nullptr;
    std::uint64_t lease = 0;  // never 0
  };
  Buffer take(std::size_t bytes);
  void release(std::uint64_t lease);

 private:
  struct Entry {
    std::unique_ptr<std::byte[]> memory;
    std::size_t bytes = 0;
  };
  SpinLock lock_;
  std::vector<Entry> entries_;             // lease - 1 is the index
  std::vector<std::size_t> free_small_;    // with their memory
  std::vector<std::size_t> free_entries_;  // without
};

}  // namespace tutti::transport
