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
  // What page number `page` holds.
  using Filler = std::function<void(std::size_t page, std::byte* contents)>;

  // When `moment` pages have been touched, `act` is called before the last of them is given to whoever touched
  // it; all others are there by then. So a process that ends in that moment leaves right contents to a
  // peer that still reads them: the kernel would show zeros where a page was never filled.
  TouchedMemory(std::size_t pages, Filler filler, std::size_t moment, std::function<void()> act);
  ~TouchedMemory();
  TouchedMemory(const TouchedMemory&) = delete;
  TouchedMemory& operator=(const TouchedMemory&) = delete;

  std::byte* data() const { return data_; }

 private:
  void serve();
  // Whether it was not there yet. Whoever waits for it goes on waiting until wake().
  bool fill(std::size_t page);
  void wake(std::size_t first, std::size_t count);

  std::size_t pages_;
  Filler filler_;
  std::size_t moment_;
  std::function<void()> act_;
  std::byte* data_ = nullptr;
  int faults_ = -1;
  int end_ = -1;  // an eventfd: the thread is to leave
  std::thread server_;
};

}  // namespace tutti::test
