// transport/mapping.hpp - memory that processes can share: made, sealed, passed on, mapped.
//
// Shared memory is an anonymous file (memfd): it has no name that could be left behind, its pages
// are taken at once (fallocate), and it is sealed against resizing, so that a peer that maps it can
// never be hit by SIGBUS.
#pragma once

#include <cstddef>

#include "core/sockets.hpp"
#include "tutti/status.hpp"

namespace tutti::transport {

// Owns a mapping.
class Mapping {
 public:
  Mapping() = default;
  Mapping(Mapping&& other) noexcept
      : data_(std::exchange(other.data_, nullptr)), bytes_(std::exchange(other.bytes_, 0)) {}
  Mapping& operator=(Mapping&& other) noexcept;
  ~Mapping() { reset(); }

  // Zeroed private memory, taken page by page as it is touched.
  static Result<Mapping> anonymous(std::size_t bytes);
  // Shared memory of `descriptor`, all of it. Code::corrupt if it is not sealed against shrinking
  // or does not have that size.
  static Result<Mapping> shared(int descriptor, std::size_t bytes, bool writable);

  // Of what is touched later.
  void keep_to_small_pages() noexcept;

  std::byte* data() const noexcept { return data_; }
  std::size_t bytes() const noexcept { return bytes_; }
  bool contains(const void* data, std::size_t bytes) const noexcept;
  // The same contents at the same address, but this process's alone: what others write into the file
  // from now on is not seen here. False: there was no memory for it, and nothing has changed.
  bool make_private() noexcept;
  // Of a mapping of `file`, whole pages: what this process writes there from now on is its own; until it has
  // written to a page it sees what others write into the file. No lock, no allocation: also in a fresh
  // child of fork(). False: the kernel refuses, and nothing has changed.
  bool copy_on_write(int file, std::size_t offset, std::size_t bytes) noexcept;

 private:
  Mapping(std::byte* data, std::size_t bytes) : data_(data), bytes_(bytes) {}
  static Result<Mapping> map(int descriptor, std::size_t bytes, int protection, int flags);
  void reset() noexcept;

  std::byte* data_ = nullptr;
  std::size_t bytes_ = 0;
};

// Memory files and private pages have no limit of their own: taking more than there is does not
// fail but wakes the kernel's killer. Code::out_of_memory if `bytes` are clearly too many.
Status check_room(std::size_t bytes);

// A sealed memory file of that size, zeroed. Code::out_of_memory when there is no room.
Result<Descriptor> make_shared_memory(const char* label, std::size_t bytes);
// One without pages, of any size; what is touched before its pages were taken may end the process.
Result<Descriptor> make_sparse_memory(const char* label, std::size_t bytes);
Status take_pages(int file, std::size_t offset, std::size_t bytes);

}  // namespace tutti::transport
