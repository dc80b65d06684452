// tutti/buffer.hpp - a view of elements that the caller lends to a collective.
//
// Buffers        own nothing; the memory must outlive the call, or the Work of an async call.
// Alignment      none is assumed.
//
//   std::vector<float> gradients(1000);                  // or std::array, std::span, pointer and count
//   group->all_reduce(tutti::Buffer::of(gradients), tutti::ReduceOp::sum);
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <type_traits>
#include <vector>

#include "tutti/dtypes.hpp"
#include "tutti/types.hpp"

namespace tutti {
inline namespace [[gnu::visibility("default")]] v1 {

enum class Device : std::uint8_t { cpu, cuda };

struct Buffer {
  void* data = nullptr;
  std::size_t count = 0;
  Dtype dtype = Dtype::u8;
  Device device = Device::cpu;
  void* ready = nullptr;  // opaque: the contents are there after it; null: already

  template <class T>
  static Buffer of(T* data, std::size_t count) {
    return {data, count, dtype_of<T>()};
  }
  template <class T>
  static Buffer of(std::vector<T>& values) {
    return of(values.data(), values.size());
  }
  template <class T, std::size_t N>
  static Buffer of(std::array<T, N>& values) {
    return of(values.data(), values.size());
  }
  template <class T, std::size_t N>
  requires(!std::is_const_v<T>) static Buffer of(std::span<T, N> values) {
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
  void* ready = nullptr;

  ConstBuffer() = default;
  ConstBuffer(const void* elements, std::size_t how_many, Dtype type)
      : data(elements), count(how_many), dtype(type) {}
  ConstBuffer(const Buffer& other)
      : data(other.data),
        count(other.count),
        dtype(other.dtype),
        device(other.device),
        ready(other.ready) {}

  template <class T>
  static ConstBuffer of(const T* data, std::size_t count) {
    return {data, count, dtype_of<T>()};
  }
  template <class T>
  static ConstBuffer of(const std::vector<T>& values) {
    return of(values.data(), values.size());
  }
  template <class T, std::size_t N>
  static ConstBuffer of(const std::array<T, N>& values) {
    return of(values.data(), values.size());
  }
  template <class T, std::size_t N>
  static ConstBuffer of(std::span<T, N> values) {
    return of(values.data(), values.size());
  }
  std::size_t bytes() const noexcept { return count * size_of(dtype); }
};

}  // namespace v1
}  // namespace tutti
