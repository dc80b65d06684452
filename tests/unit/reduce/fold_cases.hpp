// What the tests of folds share: every sensible pair of dtype and op, and inputs at odd addresses.
#pragma once

#include <algorithm>
#include <random>
#include <string>
#include <vector>

#include "reduce/kernels.hpp"

namespace tutti::reduce {

using Bytes = std::vector<unsigned char>;

inline std::vector<SimdLevel> levels() {
  std::vector<SimdLevel> all;
  for (int i = 0; i < kLevels; ++i)
    if (can_run(static_cast<SimdLevel>(i))) all.push_back(static_cast<SimdLevel>(i));
  return all;
}

// Non-commutative on purpose: 2a + b in wrapping bytes, whatever the dtype.
inline void twice_left(const void* in, void* inout, std::size_t count, Dtype dtype, void*) {
  const auto* a = static_cast<const unsigned char*>(in);
  auto* b = static_cast<unsigned char*>(inout);
  for (std::size_t i = 0; i < count * size_of(dtype); ++i)
    b[i] = static_cast<unsigned char>(2 * a[i] + b[i]);
}

inline const UserReduction& user() {
  static const UserReduction kUser{"twice_left", twice_left, nullptr, false};
  return kUser;
}

struct Case {
  Dtype dtype;
  ReduceOp op;
  bool widens = false;
  bool balanced = false;
};

inline std::vector<Case> sensible_cases() {
  std::vector<Case> cases;
  for (int d = 0; d < kDtypes; ++d)
    for (int o = 0; o < kReduceOps; ++o)
      if (is_sensible(static_cast<ReduceOp>(o), static_cast<Dtype>(d)))
        cases.push_back({static_cast<Dtype>(d), static_cast<ReduceOp>(o)});
  return cases;
}

// Those whose result can be of a wider type than what is folded.
inline std::vector<Case> widening_cases() {
  std::vector<Case> cases;
  for (Case each : sensible_cases()) {
    each.widens = true;
    if (accumulation_of(each.dtype) != each.dtype && each.op != ReduceOp::user)
      cases.push_back(each);
  }
  return cases;
}
inline std::vector<Case> all_cases() {
  std::vector<Case> cases = sensible_cases();
  for (const Case& each : widening_cases()) cases.push_back(each);
  return cases;
}
// And balanced ones where that might make a difference.
inline std::vector<Case> shaped_cases() {
  std::vector<Case> cases = all_cases();
  for (Case each : std::vector(cases)) {
    each.balanced = true;
    if (is_float(each.dtype) || each.op == ReduceOp::user || each.op == ReduceOp::avg)
      cases.push_back(each);
  }
  return cases;
}

inline Folding folding_of(const Case& c, bool finish, int ranks) {
  Reduction reduction(c.op);
  if (c.op == ReduceOp::premul_sum) reduction = Reduction::premul_sum(0.3);
  if (c.op == ReduceOp::user) reduction = Reduction::by(user());
  return {c.dtype, reduction, finish, ranks, c.widens, c.balanced};
}

// Random patterns, so with NaNs of all kinds, infinities, subnormals and zeros; where `tame`,
// floats that add up to something.
inline Bytes random_input(const Case& c, std::size_t count, bool tame, std::mt19937& random) {
  Bytes bytes(count * size_of(c.dtype));
  for (auto& byte : bytes) byte = static_cast<unsigned char>(random());
  if (c.dtype == Dtype::boolean)
    for (auto& byte : bytes) byte = byte % 3 == 0 ? 0 : byte;
  if (tame && is_float(c.dtype))  // exponents near one: clear the top exponent bit, set the next
    for (std::size_t i = size_of(c.dtype) - 1; i < bytes.size(); i += size_of(c.dtype))
      bytes[i] = static_cast<unsigned char>((bytes[i] & 0x87U) | 0x38U);
  return bytes;
}

// Inputs at odd addresses, to prove that no alignment is assumed.
struct Inputs {
  std::vector<Bytes> storage;
  std::vector<Operand> operands;

  Inputs(const Case& c, int k, std::size_t count, std::mt19937& random) {
    for (int j = 0; j < k; ++j) {
      const Bytes bytes = random_input(c, count, random() % 2 == 0, random);
      const std::size_t offset = 1 + j % 3;
      storage.emplace_back(bytes.size() + offset);
      std::copy(bytes.begin(), bytes.end(), storage.back().begin() + static_cast<long>(offset));
      operands.push_back({storage.back().data() + offset, random() % 2 == 0});
    }
  }
};

inline std::string describe(const Folding& folding, std::size_t k, std::size_t count) {
  return std::string(to_string(folding.reduction.op)) + " of " +
         std::string(to_string(folding.dtype)) + ", k = " + std::to_string(k) +
         ", count = " + std::to_string(count) + (folding.finish ? ", finished" : "") +
         (folding.widens ? ", into f32" : "") + (folding.balanced ? ", balanced" : "");
}

// How a parametrised test is called: "f32_sum", "bf16_sum_into_f32".
inline std::string name_of(const Case& c) {
  return std::string(to_string(c.dtype)) + "_" + std::string(to_string(c.op)) +
         (c.widens ? "_into_f32" : "") + (c.balanced ? "_balanced" : "");
}

}  // namespace tutti::reduce
