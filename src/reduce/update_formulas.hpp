// reduce/update_formulas.hpp - an optimizer's arithmetic on a number, or on a vector of them.
//
// Written once, for the processor's vectors (train/make_kernels.hpp) and for the GPU's threads
// (cuda/kernels/update.hpp): both do the same IEEE operations in the same order, none of them fused
// (cmake sees to that), so they give the same bits. Which NaN comes out is up to the machine: callers
// write the canonical one. Forced inline, for the reason that half.hpp gives.
#pragma once

#include <cstdint>

#include "reduce/half.hpp"

namespace tutti::reduce {

// g' = g · grad_scale
// w  = w · keep                              (decoupled decay: keep = 1 − lr · weight_decay)
// m  = m · beta1 + g' · (1 − beta1)
// v  = v · beta2 + (g' · g') · (1 − beta2)
// w  = w − step_size · (m / (√v / root_correction2 + epsilon))
// with step_size = lr / (1 − beta1^t), root_correction2 = √(1 − beta2^t). torch 1.13's formula; it
// multiplies by step_size before it divides, and fuses, so last bits differ from its.
struct AdamWFactors {
  float grad_scale = 1;
  float keep = 1;
  float beta1 = 0.9F, one_minus_beta1 = 0.1F;
  float beta2 = 0.999F, one_minus_beta2 = 0.001F;
  float step_size = 0;
  float root_correction2 = 1;
  float epsilon = 1e-8F;

  bool operator==(const AdamWFactors&) const = default;
};

template <class F>
struct AdamWState {
  F weight, exp_avg, exp_avg_sq;
};

// `root`: the square root of an F.
template <class F, class Root>
TUTTI_INLINE AdamWState<F> adamw_step(const AdamWFactors& f, F gradient, AdamWState<F> before,
                                      Root root) {
  const F g = gradient * f.grad_scale;
  const F w = before.weight * f.keep;
  const F m = before.exp_avg * f.beta1 + g * f.one_minus_beta1;
  const F v = before.exp_avg_sq * f.beta2 + (g * g) * f.one_minus_beta2;
  const F denominator = root(v) / f.root_correction2 + f.epsilon;
  return {w - f.step_size * (m / denominator), m, v};
}

// g' = g · grad_scale + w · decay;  b = first ? g' : b · momentum + g';  w = w − lr · b
struct SgdFactors {
  float grad_scale = 1;
  float decay = 0;
  float momentum = 0;
  float lr = 0;
  bool first = false;

  bool operator==(const SgdFactors&) const = default;
};

template <class F>
struct SgdState {
  F weight, momentum;
};

// First: SgdFactors::first; what momentum holds then is not looked at.
template <bool First, class F>
TUTTI_INLINE SgdState<F> sgd_step(const SgdFactors& f, F gradient, SgdState<F> before) {
  F b = gradient * f.grad_scale + before.weight * f.decay;
  if constexpr (!First) b = before.momentum * f.momentum + b;
  return {before.weight - f.lr * b, b};
}

}  // namespace tutti::reduce
