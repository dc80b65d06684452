#include "transport/mapping.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdint>
#include <cstring>
#include <functional>
#include <string>

#include "core/limits.hpp"

namespace tutti::transport {
namespace {

Status no_room(std::size_t bytes) {
  return Status(Code::out_of_memory,
                fmt::format("no room for {} bytes of memory; free some or raise the limit of this "
                            "container",
                            bytes));
}

}  // namespace

Status check_room(std::size_t bytes) {
  return bytes > available_memory_bytes() ? no_room(bytes) : Status();
}

Mapping& Mapping::operator=(Mapping&& other) noexcept {
  if (this != &other) {
    reset();
    data_ = std::exchange(other.data_, nullptr);
    bytes_ = std::exchange(other.bytes_, 0);
  }
  return *this;
}

void Mapping::reset() noexcept {
  if (data_ != nullptr) ::munmap(data_, bytes_);
  data_ = nullptr;
  bytes_ = 0;
}

Result<Mapping> Mapping::map(int descriptor, std::size_t bytes, int protection, int flags) {
  void* data = ::mmap(nullptr, bytes, protection, flags, descriptor, 0);
  if (data == MAP_FAILED) return errno_status(fmt::format("cannot map {} bytes of memory", bytes));
  // Huge pages help large folds; a kernel that has none to give is no failure.
  if (bytes >= (std::size_t{2} << 20)) (void)::madvise(data, bytes, MADV_HUGEPAGE);
  return Mapping(static_cast<std::byte*>(data), bytes);
}

void Mapping::keep_to_small_pages() noexcept { (void)::madvise(data_, bytes_, MADV_NOHUGEPAGE); }

Result<Mapping> Mapping::anonymous(std::size_t bytes) {
  return map(-1, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS);
}

Result<Mapping> Mapping::shared(int descriptor, std::size_t bytes, bool writable) {
  struct stat found {};
  if (::fstat(descriptor, &found) != 0) return errno_status("fstat of shared memory");
  const int seals = ::fcntl(descriptor, F_GET_SEALS);
  if (seals < 0 || (seals & F_SEAL_SHRINK) == 0 ||
      static_cast<std::size_t>(found.st_size) != bytes || bytes == 0)
    return Status(Code::corrupt,
                  fmt::format("shared memory of {} bytes (sealed: {}) was offered as sealed memory "
                              "of {} bytes",
                              found.st_size, seals > 0, bytes));
  return map(descriptor, bytes, writable ? PROT_READ | PROT_WRITE : PROT_READ, MAP_SHARED);
}

bool Mapping::contains(const void* data, std::size_t bytes) const noexcept {
  const std::less_equal<const std::byte*> not_after;
  const auto* begin = static_cast<const std::byte*>(data);
  return data_ != nullptr && not_after(data_, begin) && bytes <= bytes_ &&
         not_after(begin, data_ + (bytes_ - bytes));
}

bool Mapping::make_private() noexcept {
  void* copy = ::mmap(nullptr, bytes_, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (copy == MAP_FAILED) return false;
  std::memcpy(copy, data_, bytes_);
  if (::mremap(copy, bytes_, bytes_, MREMAP_MAYMOVE | MREMAP_FIXED, data_) != MAP_FAILED)
    return true;
  ::munmap(copy, bytes_);
  return false;
}

bool Mapping::copy_on_write(int file, std::size_t offset, std::size_t bytes) noexcept {
  return ::mmap(data_ + offset, bytes, PROT_READ | PROT_WRITE,
                MAP_PRIVATE | MAP_FIXED | MAP_NORESERVE, file,
                static_cast<off_t>(offset)) != MAP_FAILED;
}

Result<Descriptor> make_shared_memory(const char* label, std::size_t bytes) {
  if (Status status = check_room(bytes); !status.ok()) return status;
  auto file = make_sparse_memory(label, bytes);
  if (!file.ok()) return file;
  if (Status status = take_pages(file->get(), 0, bytes); !status.ok()) return status;
  return file;
}

Result<Descriptor> make_sparse_memory(const char* label, std::size_t bytes) {
  Descriptor file(::memfd_create(label, MFD_CLOEXEC | MFD_ALLOW_SEALING));
  if (!file) return errno_status("cannot make shared memory");
  if (::ftruncate(file.get(), static_cast<off_t>(bytes)) != 0)
    return errno_status(fmt::format("cannot size shared memory to {} bytes", bytes));
  if (::fcntl(file.get(), F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL) != 0)
    return errno_status("cannot seal shared memory");
  return file;
}

// In steps: one that a signal interrupts is undone and begins anew, and signals may come all the time.
Status take_pages(int file, std::size_t offset, std::size_t bytes) {
  constexpr std::size_t kStep = 32 << 20;
  for (const std::size_t end = offset + bytes; offset < end;) {
    const std::size_t step = std::min(kStep, end - offset);
    if (::fallocate(file, 0, static_cast<off_t>(offset), static_cast<off_t>(step)) == 0)
      offset += step;
    else if (errno == ENOSPC || errno == ENOMEM)
      return no_room(bytes);
    else if (errno != EINTR)
      return errno_status(fmt::format("cannot take {} bytes of shared memory", bytes));
  }
  return {};
}

}  // namespace tutti::transport
