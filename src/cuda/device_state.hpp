// cuda/device_state.hpp - what a Device holds of CUDA's own types, and how it calls the driver.
#pragma once

#include <array>
#include <map>
#include <mutex>
#include <vector>

#include "cuda/device.hpp"
#include "cuda/driver.hpp"
#include "cuda/failure.hpp"

namespace tutti::cuda {

// Makes a context current in this thread as long as it lives, where it is not already.
class CurrentContext {
 public:
  CurrentContext(const CudaDriver& driver, CUcontext context) : driver_(driver) {
    CUcontext before = nullptr;
    if (driver.cuCtxGetCurrent(&before) == CUDA_SUCCESS && before == context) return;
    result_ = driver.cuCtxPushCurrent_v2(context);
    pushed_ = result_ == CUDA_SUCCESS;
  }
  CurrentContext(const CurrentContext&) = delete;
  CurrentContext& operator=(const CurrentContext&) = delete;
  ~CurrentContext() {
    CUcontext popped = nullptr;
    if (pushed_) driver_.cuCtxPopCurrent_v2(&popped);
  }
  CUresult result() const { return result_; }

 private:
  const CudaDriver& driver_;
  CUresult result_ = CUDA_SUCCESS;
  bool pushed_ = false;
};

enum class UpdateKernel : std::uint8_t {
  adamw,
  sgd,
  narrow,
  widen,
  add,
  find_not_finite,
  sum_squares
};
inline constexpr std::size_t kUpdateKernels = 7;

struct Device::State {
  State(const CudaDriver& functions, int number) : driver(functions), ordinal(number) {}
  State(const State&) = delete;
  State& operator=(const State&) = delete;
  ~State();

  // What the driver answers to `call(driver)`, with this device's context.
  template <class Call>
  CUresult ask(Call call) const {
    const CurrentContext current(driver, context);
    return current.result() == CUDA_SUCCESS ? call(driver) : current.result();
  }
  // The same as a Status; `name` is that of the driver's function.
  template <class Call>
  Status make(const char* name, Call call) const {
    return status_of(driver, ask(call), name, ordinal);
  }

  Status open_context();
  Status load_kernels();
  Status load_kernel(const char* name, CUfunction& kernel) const;
  Status start(CUfunction kernel, const Phase& phase, int blocks, int threads,
               CUstream stream) const;
  Status load_update_kernels();
  // By as many blocks as keep the device busy, or fewer where there are not `items` enough.
  template <class Job>
  Status start_update(UpdateKernel kernel, const Job& job, std::uint64_t items,
                      StreamHandle stream) const;

  const CudaDriver& driver;
  const int ordinal;
  CUdevice device = 0;
  CUcontext context = nullptr;
  int stream_priority = 0;  // the highest
  int least_stream_priority = 0;
  bool same_host_addresses = false;  // registered memory has the host's addresses on the device

  std::vector<CUmodule> modules;
  std::array<CUfunction, kDtypes> folds{};
  std::array<CUfunction, kDtypes> shaped_folds{};  // null but for floats
  CUfunction copy = nullptr;
  CUfunction meet = nullptr;
  std::array<CUfunction, kUpdateKernels> updates{};
  int multiprocessors = 1;

  std::mutex reach_mutex;
  std::map<int, CUcontext> reached;  // contexts of other devices that this one can reach, retained
};

}  // namespace tutti::cuda
