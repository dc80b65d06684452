// The folds of unsigned integers, and those of signed ones where sign does not matter.
#include "cuda/kernels/entry.cuh"

#define TUTTI_KERNEL_integer(...)
#define TUTTI_KERNEL_natural(name, ...) TUTTI_FOLD_KERNEL(name, natural, __VA_ARGS__)
#define TUTTI_KERNEL_truth(...)
#define TUTTI_KERNEL_real(...)
#define TUTTI_KERNEL_finite(...)
#define TUTTI_DTYPE(name, NAME, word, kind, bytes, exponent, mantissa, ...) \
  TUTTI_KERNEL_##kind(name, bytes, exponent, mantissa)
#include "tutti/dtypes.def"
