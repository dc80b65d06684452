// cuda/kernels/entry.cuh - how the functions of phase.hpp become kernels that the driver finds by name.
#pragma once

#include "cuda/kernels/phase.hpp"

// Two blocks of kBlockThreads fit on a multiprocessor: 64 registers a thread.
#define TUTTI_KERNEL(name, ...)                                                       \
  extern "C" __global__ void __launch_bounds__(tutti::cuda::kBlockThreads, 2)         \
      tutti_##name(const __grid_constant__ tutti::cuda::Phase phase) {                \
    __shared__ tutti::cuda::kernels::Shared shared;                                   \
    tutti::cuda::kernels::__VA_ARGS__(phase, shared, tutti::cuda::kernels::Worker{}); \
  }

// The kernel of a row of tutti/dtypes.def, and the one for balanced and widening folds of floats.
#define TUTTI_FOLD_KERNEL(name, kind, bytes, exponent, mantissa) \
  TUTTI_KERNEL(                                                  \
      fold_##name,                                               \
      run_fold_phase<                                            \
          tutti::cuda::kernels::ElementOf<tutti::DtypeKind::kind, bytes, exponent, mantissa>>)
#define TUTTI_SHAPED_FOLD_KERNEL(name, kind, bytes, exponent, mantissa) \
  TUTTI_KERNEL(                                                         \
      shaped_fold_##name,                                               \
      run_shaped_fold_phase<                                            \
          tutti::cuda::kernels::ElementOf<tutti::DtypeKind::kind, bytes, exponent, mantissa>>)
