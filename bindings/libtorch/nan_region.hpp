// bindings/libtorch/nan_region.hpp - a stretch of address space that reads as NaN, in f32 and bf16, and takes next to
// no memory.
//
// One small piece of memory is mapped again and again. What is written there is the writer's own, and takes
// memory then.
//
// Thread-safety  reading from any thread.
#pragma once

#include <cstddef>
#include <memory>

#include "tutti/status.hpp"

namespace tutti::libtorch {

class NanRegion {
 public:
  // out_of_memory, if there is no room for so many bytes.
  static Result<std::shared_ptr<NanRegion>> create(std::size_t bytes);
  ~NanRegion();
  NanRegion(const NanRegion&) = delete;
  NanRegion& operator=(const NanRegion&) = delete;

  void* data() const { return data_; }

 private:
  NanRegion(void* data, std::size_t bytes) : data_(data), bytes_(bytes) {}

  void* data_;
  std::size_t bytes_;
};

}  // namespace tutti::libtorch
