// Launches without arithmetic.
#include "cuda/kernels/entry.cuh"

TUTTI_KERNEL(copy, run_copy_phase)
TUTTI_KERNEL(meet, run_meet)
