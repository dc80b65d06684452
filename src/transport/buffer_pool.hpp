// transport/buffer_pool.hpp - memory of a link's own for payloads that have to wait for their
// reader.
//
// Thread-safety  any thread.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "core/spin_lock.hpp"

namespace tutti::transport {

class BufferPool {
 public:
  struct Buffer {
    std::byte* data = nullptr;
    std::uint64_t lease = 0;  // never 0; below 2^32
  };
  Buffer take(std::size_t bytes);
  void release(std::uint64_t lease);

 private:
  static constexpr std::size_t kClasses = 24;  // of powers of two, from kSmallest up
  struct Entry {
    std::unique_ptr<std::byte[]> memory;
    std::size_t size_class = 0;
  };
  SpinLock lock_;
  std::vector<Entry> entries_;                           // lease - 1 is the index
  std::array<std::vector<std::size_t>, kClasses> kept_;  // free entries with their memory
  std::vector<std::size_t> empty_;                       // free entries without
  std::size_t kept_bytes_ = 0;
};

}  // namespace tutti::transport
