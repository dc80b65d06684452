// The update's arithmetic in the plainest words. No formula is shared with the vector kernels, so
// that a mistake in one shows against the other.
#include <cmath>
#include <limits>

#include "reduce/half.hpp"
#include "train/kernels.hpp"

namespace tutti::train::reference {
namespace {

template <class T>
T canonical(T x) {
  return std::isnan(x) ? std::numeric_limits<T>::quiet_NaN() : x;
}

}  // namespace

void adamw(const AdamWFactors& factors, float* weights, const float* gradient, float* exp_avg,
           float* exp_avg_sq, std::size_t count) {
  for (std::size_t i = 0; i < count; ++i) {
    const float g = gradient[i] * factors.grad_scale;
    const float w = weights[i] * factors.keep;
    const float m = exp_avg[i] * factors.beta1 + g * factors.one_minus_beta1;
    const float v = exp_avg_sq[i] * factors.beta2 + (g * g) * factors.one_minus_beta2;
    const float denominator = std::sqrt(v) / factors.root_correction2 + factors.epsilon;
    exp_avg[i] = canonical(m);
    exp_avg_sq[i] = canonical(v);
    weights[i] = canonical(w - factors.step_size * (m / denominator));
  }
}

void sgd(const SgdFactors& factors, float* weights, const float* gradient, float* momentum,
         std::size_t count) {
  for (std::size_t i = 0; i < count; ++i) {
    const float g = gradient[i] * factors.grad_scale + weights[i] * factors.decay;
    const float b = factors.first ? g : momentum[i] * factors.momentum + g;
    momentum[i] = canonical(b);
    weights[i] = canonical(weights[i] - factors.lr * b);
  }
}

void narrow(Dtype dtype, const float* from, std::uint16_t* to, std::size_t count) {
  for (std::size_t i = 0; i < count; ++i)
    to[i] = dtype == Dtype::f16 ? reduce::f32_to_f16(from[i]) : reduce::f32_to_bf16(from[i]);
}

void widen(Dtype dtype, const std::uint16_t* from, float* to, std::size_t count) {
  for (std::size_t i = 0; i < count; ++i)
    to[i] = dtype == Dtype::f16 ? reduce::f16_to_f32(from[i]) : reduce::bf16_to_f32(from[i]);
}

std::size_t first_not_finite(const float* values, std::size_t count) {
  for (std::size_t i = 0; i < count; ++i)
    if (!std::isfinite(values[i])) return i;
  return count;
}

}  // namespace tutti::train::reference
