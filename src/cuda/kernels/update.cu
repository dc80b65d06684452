// An optimizer's arithmetic.
#include "cuda/kernels/update.hpp"

#define TUTTI_UPDATE_KERNEL(name, Job, ...)                                   \
  extern "C" __global__ void __launch_bounds__(tutti::cuda::kBlockThreads, 2) \
      tutti_##name(const __grid_constant__ tutti::cuda::Job job) {            \
    tutti::cuda::kernels::__VA_ARGS__(job, tutti::cuda::kernels::Worker{});   \
  }

TUTTI_UPDATE_KERNEL(adamw, AdamWJob, run_update)
TUTTI_UPDATE_KERNEL(sgd, SgdJob, run_update)
TUTTI_UPDATE_KERNEL(narrow, ConvertJob, run_narrow)
TUTTI_UPDATE_KERNEL(widen, ConvertJob, run_widen)
TUTTI_UPDATE_KERNEL(add, AddJob, run_add)
TUTTI_UPDATE_KERNEL(find_not_finite, InspectJob, run_find_not_finite)

extern "C" __global__ void __launch_bounds__(tutti::cuda::kBlockThreads, 2)
    tutti_sum_squares(const __grid_constant__ tutti::cuda::InspectJob job) {
  __shared__ tutti::cuda::kernels::SharedLimbs shared;
  tutti::cuda::kernels::run_sum_squares(job, shared, tutti::cuda::kernels::Worker{});
}
