#include "nan_region.hpp"

#include <sys/mman.h>
#include <unistd.h>

#include <cstdint>
#include <vector>

namespace tutti::libtorch {

namespace {

constexpr std::size_t kPiece = std::size_t{1} << 20;
// A NaN as f32, and so is each half of it as bf16 or f16.
constexpr std::uint32_t kNan = 0x7fc07fc0;

int nan_file() {
  const int file = ::memfd_create("nan", MFD_CLOEXEC);
  if (file < 0) return -1;
  const std::vector<std::uint32_t> piece(kPiece / sizeof(std::uint32_t), kNan);
  // bounded: into memory
  if (::write(file, piece.data(), kPiece) == static_cast<ssize_t>(kPiece)) return file;
  ::close(file);
  return -1;
}

bool map_pieces(void* data, std::size_t bytes, int file) {
  for (std::size_t at = 0; at < bytes; at += kPiece)
    if (::mmap(static_cast<std::byte*>(data) + at, kPiece, PROT_READ | PROT_WRITE,
               MAP_PRIVATE | MAP_FIXED | MAP_NORESERVE, file, 0) == MAP_FAILED)
      return false;
  return true;
}

}  // namespace

Result<std::shared_ptr<NanRegion>> NanRegion::create(std::size_t bytes) {
  bytes = (bytes + kPiece) / kPiece * kPiece;
  const Status none{Code::out_of_memory, "no address space for weights that are not there"};
  void* data =
      ::mmap(nullptr, bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (data == MAP_FAILED) return none;
  std::shared_ptr<NanRegion> region(new NanRegion(data, bytes));
  const int file = nan_file();
  if (file < 0) return none;
  const bool mapped = map_pieces(data, bytes, file);
  ::close(file);
  if (!mapped) return none;
  return region;
}

NanRegion::~NanRegion() { ::munmap(data_, bytes_); }

}  // namespace tutti::libtorch
