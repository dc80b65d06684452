// fake_cuda/emulated.hpp - tests that have an emulated GPU, each in a process of its own.
//
// A process can have one driver only, and reads how it is to behave once: so the body runs in a child,
// whose failed assertions reach this test. The test's own process never loads a driver.
//
//   TEST_F(EmulatedGpu, has_two_devices) {
//     on_emulated_gpu({{"FAKE_CUDA_DEVICES", "2"}}, [] { EXPECT_EQ(*cuda::count_devices(), 2); });
//   }
#pragma once

#include <gtest/gtest.h>

#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <vector>

namespace tutti::test {

class EmulatedGpu : public testing::Test {
 protected:
  void SetUp() override {
    if (!TUTTI_WITH_CUDA) GTEST_SKIP() << "this build has no CUDA";
  }
};

using Environment = std::map<std::string, std::string>;

// `body`, with the emulated driver where the real one would be found.
void on_emulated_gpu(const Environment& environment, const std::function<void()>& body);
// Several processes, `body(which)` in each.
void on_emulated_gpus(const Environment& environment, int processes,
                      const std::function<void(int)>& body);
// In a process without any driver, until it loads one.
void load_emulated_driver();
void without_driver(const std::function<void()>& body);

// ---- inside of a body

// Memory on device 0 that cannot be exported, as that of a pool.
std::uint64_t allocate_pool(std::size_t bytes);
// As if a kernel had gone astray: the context is lost.
void lose_context();

}  // namespace tutti::test
