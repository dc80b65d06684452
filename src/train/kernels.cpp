// Picks the kernels that this processor runs best, by the level that reduce finds.
#include "train/kernels.hpp"

#include <cmath>

#include "core/check.hpp"
#include "train/kernel_table.hpp"

namespace tutti::train {
namespace {

const UpdateKernels* kernels_of(reduce::SimdLevel level) {
  switch (level) {
    case reduce::SimdLevel::plain: return plain_kernels();
    case reduce::SimdLevel::avx2: return avx2_kernels();
    case reduce::SimdLevel::avx512: return avx512_kernels();
  }
  return nullptr;
}

const UpdateKernels& best() {
  static const UpdateKernels& kernels = update_kernels(reduce::best_level());
  return kernels;
}

}  // namespace

const UpdateKernels& update_kernels(reduce::SimdLevel level) {
  TUTTI_CHECK(reduce::can_run(level));
  const UpdateKernels* kernels = kernels_of(level);
  TUTTI_CHECK(kernels != nullptr);  // both rooms' files are compiled with the same switches
  return *kernels;
}

void adamw(const AdamWFactors& factors, float* weights, const float* gradient, float* exp_avg,
           float* exp_avg_sq, std::size_t count) {
  best().adamw(factors, weights, gradient, exp_avg, exp_avg_sq, count);
}

void sgd(const SgdFactors& factors, float* weights, const float* gradient, float* momentum,
         std::size_t count) {
  best().sgd(factors, weights, gradient, momentum, count);
}

void narrow(Dtype dtype, const float* from, std::uint16_t* to, std::size_t count) {
  best().narrow(dtype, from, to, count);
}

void widen(Dtype dtype, const std::uint16_t* from, float* to, std::size_t count) {
  best().widen(dtype, from, to, count);
}

std::size_t first_not_finite(const float* values, std::size_t count) {
  return best().first_not_finite(values, count);
}

bool square_sums(const float* values, std::size_t count, double* high_low) {
  return best().square_sums(values, count, high_low);
}

void add_squares(const float* values, std::size_t count, ExactSum& sum) {
  for (std::size_t i = 0; i < count; ++i)
    if (std::isfinite(values[i])) sum.add(double{values[i]} * double{values[i]});
}

}  // namespace tutti::train
