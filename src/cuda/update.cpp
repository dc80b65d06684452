// The kernels of an optimizer's arithmetic: loaded, and started.
#include <algorithm>

#include "core/check.hpp"
#include "cuda/device.hpp"
#include "cuda/device_state.hpp"

namespace tutti::cuda {
namespace {

// As UpdateKernel counts them.
constexpr const char* kUpdateNames[kUpdateKernels] = {
    "tutti_adamw",           "tutti_sgd",        "tutti_narrow", "tutti_widen", "tutti_add",
    "tutti_find_not_finite", "tutti_sum_squares"};

constexpr std::uint64_t kElementsPerThread = 4;
constexpr std::uint64_t kElementsPerSquare = 64;
constexpr std::uint64_t kBlocksPerMultiprocessor = 2;  // that run at once: kernels/update.cu

template <class Factors>
std::uint64_t elements_of(const UpdateJob<Factors>& job) {
  TUTTI_CHECK(job.piece_count <= kMostPieces && job.factor_count <= kMostFactors);
  std::uint64_t elements = 0;
  for (int i = 0; i < job.piece_count; ++i) elements += job.pieces[i].count;
  return elements;
}

}  // namespace

Status Device::State::load_update_kernels() {
  for (std::size_t i = 0; i < kUpdateKernels; ++i)
    if (Status status = load_kernel(kUpdateNames[i], updates[i]); !status.ok()) return status;
  return {};
}

template <class Job>
Status Device::State::start_update(UpdateKernel kernel, const Job& job, std::uint64_t items,
                                   StreamHandle stream) const {
  if (items == 0) return {};
  const std::uint64_t wanted = (items + kBlockThreads - 1) / kBlockThreads;
  const auto most = kBlocksPerMultiprocessor * static_cast<std::uint64_t>(multiprocessors);
  void* parameters[] = {const_cast<Job*>(&job)};
  return make("cuLaunchKernel", [&](const CudaDriver& d) {
    return d.cuLaunchKernel(updates[static_cast<std::size_t>(kernel)],
                            static_cast<unsigned>(std::min(wanted, most)), 1, 1, kBlockThreads, 1,
                            1, 0, static_cast<CUstream>(stream), parameters, nullptr);
  });
}

Status Device::update(const AdamWJob& job, StreamHandle stream) {
  return state_->start_update(UpdateKernel::adamw, job, elements_of(job) / kElementsPerThread + 1,
                              stream);
}

Status Device::update(const SgdJob& job, StreamHandle stream) {
  return state_->start_update(UpdateKernel::sgd, job, elements_of(job) / kElementsPerThread + 1,
                              stream);
}

Status Device::narrow(const ConvertJob& job, StreamHandle stream) {
  return state_->start_update(UpdateKernel::narrow, job, job.count / kElementsPerThread + 1,
                              stream);
}

Status Device::widen(const ConvertJob& job, StreamHandle stream) {
  return state_->start_update(UpdateKernel::widen, job, job.count / kElementsPerThread + 1, stream);
}

Status Device::add(const AddJob& job, StreamHandle stream) {
  return state_->start_update(UpdateKernel::add, job, job.count / kElementsPerThread + 1, stream);
}

Status Device::find_not_finite(const InspectJob& job, StreamHandle stream) {
  return state_->start_update(UpdateKernel::find_not_finite, job,
                              job.count / kElementsPerThread + 1, stream);
}

Status Device::sum_squares(const InspectJob& job, StreamHandle stream) {
  return state_->start_update(UpdateKernel::sum_squares, job, job.count / kElementsPerSquare + 1,
                              stream);
}

}  // namespace tutti::cuda
