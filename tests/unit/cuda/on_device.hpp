// What the tests on the emulated driver share.
#pragma once

#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <cstdint>
#include <cstring>
#include <memory>
#include <thread>
#include <vector>

#include "cuda/device.hpp"
#include "support/fake_cuda/emulated.hpp"

namespace tutti::cuda {

using test::EmulatedGpu;
using test::on_emulated_gpu;
using test::on_emulated_gpus;

#define EXPECT_OK(call)                                       \
  do {                                                        \
    const Status said = (call);                               \
    EXPECT_TRUE(said.ok()) << #call ": " << said.to_string(); \
  } while (false)

// The value, or a failure and a default.
template <class T>
T need(Result<T> result) {
  EXPECT_TRUE(result.ok()) << result.status().to_string();
  return result.ok() ? std::move(*result) : T();
}

inline std::shared_ptr<Device> open_device(int ordinal = 0) { return need(Device::open(ordinal)); }

inline MemoryOperation write_word(Address word, std::uint64_t value) {
  return {MemoryOperation::Kind::write, word, value};
}
inline MemoryOperation wait_for_word(Address word, std::uint64_t value) {
  return {MemoryOperation::Kind::wait, word, value};
}

// Words of pinned memory, zero at first, as host and device see them.
class Words {
 public:
  explicit Words(Device& device, std::size_t count = 8)
      : memory_(need(device.allocate_pinned(count * sizeof(std::uint64_t)))) {
    std::memset(memory_.data(), 0, memory_.bytes());
  }
  Address address(std::size_t i = 0) const { return memory_.address() + i * sizeof(std::uint64_t); }
  std::uint64_t get(std::size_t i = 0) const {
    return __atomic_load_n(reinterpret_cast<std::uint64_t*>(address(i)), __ATOMIC_ACQUIRE);
  }
  void set(std::uint64_t value, std::size_t i = 0) {
    __atomic_store_n(reinterpret_cast<std::uint64_t*>(address(i)), value, __ATOMIC_RELEASE);
  }

 private:
  Memory memory_;
};

// Some time for what must not happen.
inline void wait_a_little() { std::this_thread::sleep_for(std::chrono::milliseconds(20)); }

}  // namespace tutti::cuda
