// programs/touched_memory.hpp - memory that tells when it is touched, page by page.
//
// The pages are not there at first: whoever touches one, this process, the kernel in recv or a peer in
// process_vm_readv, waits until a thread of ours has filled it (userfaultfd). So a test can act in the very
// moment at which a collective comes to its first, middle or last page, without a hook in the library.
#pragma once

#include <cstddef>
#include <functional>
#include <span>
#include <thread>

namespace tutti::test {

inline constexpr std::size_t kPage = 4096;

class TouchedMemory {
 public:
  // Fills page number `page`; `touched` is how many were touched by now, this one included.
  using Filler = std::function<void(std::size_t page, std::size_t touched, std::byte* contents)>;

  TouchedMemory(std::size_t pages, Filler filler);
  ~TouchedMemory();
  TouchedMemory(const TouchedMemory&) = delete;
  TouchedMemory& operator=(const TouchedMemory&) = delete;

  std::byte* data() const { return data_; }

 private:
  void serve();

  std::size_t pages_;
  Filler filler_;
  std::byte* data_ = nullptr;
  int faults_ = -1;
  int end_ = -1;  // an eventfd: the thread is to leave
  std::thread server_;
};

}  // namespace tutti::test
