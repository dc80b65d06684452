// The kernels: loaded when the device is opened, and started.
#include "core/check.hpp"
#include "cuda/device.hpp"
#include "cuda/device_state.hpp"
#include "cuda/images.hpp"
#include "cuda/reduction.hpp"

namespace tutti::cuda {
namespace {

constexpr const char* kFoldNames[] = {
#define TUTTI_DTYPE(name, ...) "tutti_fold_" #name,
#include "tutti/dtypes.def"
#undef TUTTI_DTYPE
};

// Of floats; the others' folds do not depend on shape, and are never rounded.
constexpr const char* kShapedFoldNames[] = {
#define TUTTI_DTYPE(name, ...) "tutti_shaped_fold_" #name,
#include "tutti/dtypes.def"
#undef TUTTI_DTYPE
};

constexpr int kMeetThreads = 64;  // a rank each, and a whole number of warps
static_assert(kMeetThreads >= kMostRanks);

}  // namespace

// Of a module that is loaded lazily a function is loaded when it is asked for, or else at its first
// launch, which would block while some stream waits. cuFuncLoad says so outright; drivers that have it not
// load a function when they are asked for it.
Status Device::State::load_kernel(const char* name, CUfunction& kernel) const {
  CUresult result = CUDA_ERROR_NOT_FOUND;
  for (CUmodule loaded : modules) {
    result = driver.cuModuleGetFunction(&kernel, loaded, name);
    if (result != CUDA_ERROR_NOT_FOUND) break;
  }
  if (result == CUDA_SUCCESS && driver.cuFuncLoad != nullptr) result = driver.cuFuncLoad(kernel);
  return status_of(driver, result, "cuModuleGetFunction", ordinal).annotate(name);
}

Status Device::State::load_kernels() {
  const CurrentContext current(driver, context);
  for (const void* image : kernel_images()) {
    CUmodule loaded = nullptr;
    const CUresult result = driver.cuModuleLoadData(&loaded, image);
    if (result != CUDA_SUCCESS) return status_of(driver, result, "cuModuleLoadData", ordinal);
    modules.push_back(loaded);
  }
  for (std::size_t i = 0; i < folds.size(); ++i)
    if (Status status = load_kernel(kFoldNames[i], folds[i]); !status.ok()) return status;
  for (std::size_t i = 0; i < shaped_folds.size(); ++i)
    if (is_float(static_cast<Dtype>(i)))
      if (Status status = load_kernel(kShapedFoldNames[i], shaped_folds[i]); !status.ok())
        return status;
  if (Status status = load_kernel("tutti_copy", copy); !status.ok()) return status;
  if (Status status = load_kernel("tutti_meet", meet); !status.ok()) return status;
  return load_update_kernels();
}

Status Device::State::start(CUfunction kernel, const Phase& phase, int blocks, int threads,
                            CUstream stream) const {
  TUTTI_CHECK(blocks > 0 && phase.ranks <= kMostRanks && phase.copy_count <= kMostRanks);
  void* parameters[] = {const_cast<Phase*>(&phase)};
  return make("cuLaunchKernel", [&](const CudaDriver& d) {
    return d.cuLaunchKernel(kernel, static_cast<unsigned>(blocks), 1, 1,
                            static_cast<unsigned>(threads), 1, 1, 0, stream, parameters, nullptr);
  });
}

Status Device::launch(const Phase& phase, Dtype dtype, int blocks, StreamHandle stream) {
  CUfunction kernel = state_->copy;
  if (phase.fold.bytes != 0 && phase.fold.copies == 0) {
    const auto row =
        static_cast<std::size_t>(kernel_dtype(dtype, static_cast<ReduceOp>(phase.fold.op)));
    kernel = is_shaped(phase.fold) ? state_->shaped_folds[row] : state_->folds[row];
  }
  return state_->start(kernel, phase, blocks, kBlockThreads, static_cast<CUstream>(stream));
}

Status Device::launch_meet(const Phase& phase, StreamHandle stream) {
  return state_->start(state_->meet, phase, 1, kMeetThreads, static_cast<CUstream>(stream));
}

}  // namespace tutti::cuda
