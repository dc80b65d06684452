// The folds of signed integers where sign matters, and those of booleans.
#include "cuda/kernels/entry.cuh"

#define TUTTI_KERNEL_integer(name, ...) TUTTI_FOLD_KERNEL(name, integer, __VA_ARGS__)
#define TUTTI_KERNEL_natural(...)
#define TUTTI_KERNEL_truth(name, ...) TUTTI_FOLD_KERNEL(name, truth, __VA_ARGS__)
#define TUTTI_KERNEL_real(...)
#define TUTTI_KERNEL_finite(...)
#define TUTTI_DTYPE(name, NAME, word, kind, bytes, exponent, mantissa, ...) \
  TUTTI_KERNEL_##kind(name, bytes, exponent, mantissa)
#include "tutti/dtypes.def"
