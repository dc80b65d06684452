// The folds of floats that are balanced, or not rounded.
#include "cuda/kernels/entry.cuh"

#define TUTTI_KERNEL_integer(...)
#define TUTTI_KERNEL_natural(...)
#define TUTTI_KERNEL_truth(...)
#define TUTTI_KERNEL_real(name, ...) TUTTI_SHAPED_FOLD_KERNEL(name, real, __VA_ARGS__)
#define TUTTI_KERNEL_finite(name, ...) TUTTI_SHAPED_FOLD_KERNEL(name, finite, __VA_ARGS__)
#define TUTTI_DTYPE(name, NAME, word, kind, bytes, exponent, mantissa, ...) \
  TUTTI_KERNEL_##kind(name, bytes, exponent, mantissa)
#include "tutti/dtypes.def"
