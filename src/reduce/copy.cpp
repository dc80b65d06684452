#include "reduce/copy.hpp"

#include <algorithm>
#include <cstring>

#if defined(__SSE2__)
#include <emmintrin.h>
#endif

#include "reduce/kernels.hpp"

namespace tutti::reduce {
namespace {

// Half of a first-level cache: what is copied to several places is read from memory for the first
// of them only.
constexpr std::size_t kCopyBlockBytes = 16 << 10;

void copy_with(const Kernels& kernels, void* dst, const void* src, std::size_t bytes,
               Stores stores) {
  if (bytes == 0 || dst == src) return;
  if (stores == Stores::cached) {
    std::memcpy(dst, src, bytes);
    return;
  }
  kernels.stream(static_cast<char*>(dst), static_cast<const char*>(src), bytes);
  fence_streams();
}

}  // namespace

void fence_streams() {
#if defined(__SSE2__)
  _mm_sfence();
#endif
}

void copy_to_places(const Kernels& kernels, const OperandPlaces& places, const void* src,
                    std::size_t offset, std::size_t bytes) {
  const std::size_t block = places.count == 1 ? std::max<std::size_t>(bytes, 1) : kCopyBlockBytes;
  for (std::size_t at = 0; at < bytes; at += block) {
    const char* from = static_cast<const char*>(src) + at;
    const std::size_t length = std::min(block, bytes - at);
    for (std::size_t d = 0; d < places.count; ++d) {
      char* to = static_cast<char*>(places.data[d]) + offset + at;
      if (to == from) continue;
      if ((places.streaming >> d & 1) != 0)
        kernels.stream(to, from, length);
      else
        std::memcpy(to, from, length);
    }
  }
}

void copy_at(SimdLevel level, void* dst, const void* src, std::size_t bytes, Stores stores) {
  copy_with(kernels_at(level), dst, src, bytes, stores);
}

void copy(void* dst, const void* src, std::size_t bytes, Stores stores) {
  copy_with(best_kernels(), dst, src, bytes, stores);
}

}  // namespace tutti::reduce
