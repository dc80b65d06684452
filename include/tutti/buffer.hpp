// tutti/buffer.hpp - a view of elements that the caller lends to a collective.
//
// Buffers        own nothing; the memory must outlive the call, or the Work of an async call.
// Alignment      none is assumed.
//
//   std::vector<float> gradients(1000);
//   group->all_reduce(tutti::Buffer::of(gradients), tutti::ReduceOp::sum);
#pragma once

#include <cstddef>
#include <cstdint>
#include <type_traits>
#include <vector>

#include "tutti/types.hpp"

namespace tutti {
inline namespace [[gnu::visibility("default")]] v1 {

enum class Device : std::uint8_t { cpu, cuda };

// Opaque handle of memory that was registered before; 0 lets the library look it up.
using Registration = std::uint64_t;

// The element type that a C++ type stands for.
template <class T>
constexpr Dtype dtype_of() {
  using U = std::remove_cv_t<T>;
  if constexpr (std::is_same_v<U, bool>)
    return Dtype::boolean;
  else if constexpr (std::is_same_v<U, float>)
    return Dtype::f32;
  else if constexpr (std::is_same_v<U, double>)
    return Dtype::f64;
  else {
    static_assert(std::is_integral_v<U>, "no Dtype stands for this C++ type");
    constexpr bool is_signed = std::is_signed_v<U>;
    if constexpr (sizeof(U) == 1)
      return is_signed ? Dtype::i8 : Dtype::u8;
    else if constexpr (sizeof(U) == 2)
      return is_signed ? Dtype::i16 : Dtype::u16;
    else if constexpr (sizeof(U) == 4)
      return is_signed ? Dtype::i32 : Dtype::u32;
    else
      return is_signed ? Dtype::i64 : Dtype::u64;
  }
}

struct Buffer {
  void* data = nullptr;
  std::size_t count = 0;
  Dtype dtype = Dtype::u8;
  Device device = Device::cpu;
  Registration registration = 0;
  void* ready = nullptr;  // opaque: the contents are there after it; null: already

  template <class T>
  static Buffer of(T* data, std::size_t count) {
    return {data, count, dtype_of<T>()};
  }
  template <class T>
  static Buffer of(std::vector<T>& values) {
    return of(values.data(), values.size());
  }
  std::size_t bytes() const noexcept { return count * size_of(dtype); }
};

// The same for memory that is only read. A Buffer converts to it.
struct ConstBuffer {
  const void* data = nullptr;
  std::size_t count = 0;
  Dtype dtype = Dtype::u8;
  Device device = Device::cpu;
  Registration registration = 0;
  void* ready = nullptr;

  ConstBuffer() = default;
  ConstBuffer(const void* data, std::size_t count, Dtype dtype)
      : data(data), count(count), dtype(dtype) {}
  ConstBuffer(const Buffer& other)
      : data(other.data),
        count(other.count),
        dtype(other.dtype),
        device(other.device),
        registration(other.registration),
        ready(other.ready) {}

  template <class T>
  static ConstBuffer of(const T* data, std::size_t count) {
    return {data, count, dtype_of<T>()};
  }
  template <class T>
  static ConstBuffer of(const std::vector<T>& values) {
    return of(values.data(), values.size());
  }
  std::size_t bytes() const noexcept { return count * size_of(dtype); }
};

}  // namespace v1
}  // namespace tutti
