// train/gpu.hpp - the training layer on a GPU: the emulated one, or with TUTTI_TEST_GPU=real this
// machine's.
#pragma once

#include <dlfcn.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <memory>
#include <string>

#include "cuda/device.hpp"
#include "tutti/train.hpp"

namespace tutti::test {

inline bool on_real_gpu() {
  const char* which = std::getenv("TUTTI_TEST_GPU");
  return which != nullptr && std::string(which) == "real";
}

// Why there is none; empty: there is one.
inline std::string no_gpu() { return TUTTI_WITH_CUDA ? std::string() : "this build has no CUDA"; }

// A stream of one rank's own on the first GPU. In a rank's process: the test's own must load no driver.
class GpuStream {
 public:
  GpuStream() {
    if (!on_real_gpu()) load_emulation();
    auto device = cuda::Device::open(0);
    EXPECT_TRUE(device.ok()) << device.status().to_string();
    if (!device.ok()) return;
    auto stream = (*device)->make_stream();
    EXPECT_TRUE(stream.ok()) << stream.status().to_string();
    if (stream.ok()) stream_ = *std::move(stream);
  }
  // For training there.
  void use(train::DataParallelOptions& options) const {
    options.device = Device::cuda;
    options.stream = [handle = stream_.get()] { return handle; };
  }

 private:
  // Beside the test program, as in support/fake_cuda/emulated.cpp, which is of no use in worlds.
  static void load_emulation() {
    const auto folder = std::filesystem::read_symlink("/proc/self/exe").parent_path();
    const std::string path = folder / "fake_cuda/libcuda.so.1";
    if (::dlopen(path.c_str(), RTLD_NOW | RTLD_GLOBAL) == nullptr) ADD_FAILURE() << ::dlerror();
  }

  cuda::Stream stream_;
};

}  // namespace tutti::test
