// support/kernel_checks.hpp - what kernels have to do, checked against reduce::fold_reference to the bit.
//
// The same checks run on the host, where kernels are ordinary functions, and on a GPU (tests/gpu): each
// lays operands and targets out in one piece of memory, between bytes that nobody may touch, lets the
// kernel run, and compares all of that memory.
#pragma once

#include <gtest/gtest.h>

#include <random>
#include <string>
#include <variant>
#include <vector>

#include "cuda/job.hpp"
#include "cuda/update_job.hpp"
#include "reduce/fold.hpp"
#include "unit/reduce/fold_cases.hpp"

namespace tutti::cuda {

// The launches of an optimizer's arithmetic (support/update_checks.hpp).
struct NarrowCall : ConvertJob {};
struct WidenCall : ConvertJob {};
struct FindCall : InspectJob {};
struct SquaresCall : InspectJob {};
using UpdateCall =
    std::variant<AdamWJob, SgdJob, NarrowCall, WidenCall, AddJob, FindCall, SquaresCall>;

// Memory in which kernels work, and somebody who runs them there.
class KernelRunner {
 public:
  virtual ~KernelRunner() = default;
  virtual std::uint64_t base() const = 0;  // a multiple of 256
  virtual std::size_t capacity() const = 0;
  virtual void write(const reduce::Bytes& bytes) = 0;  // from `base` on
  virtual reduce::Bytes read(std::size_t bytes) = 0;
  virtual void run(const Phase& phase, Dtype dtype) = 0;
  virtual void run(const UpdateCall& call) = 0;
};

// How the places of a fold lie within 16 bytes.
enum class PlaceLayout {
  aligned,     // at multiples of 16
  alike,       // all at the same multiple of an element, or at an odd byte where that is 1
  unlike,      // at different multiples of an element
  misaligned,  // at different odd bytes
};

struct FoldCheck {
  reduce::Case pair;
  int operands = 2;
  std::size_t count = 0;
  PlaceLayout layout = PlaceLayout::aligned;
  int targets = 1;
  bool in_place = false;  // targets are the operands, as far as there are any
  bool finish = true;
};
std::string describe(const FoldCheck& check);

// Of one pair of dtype and op: operand counts 1, 2, 3, 8 and 16 with these element counts, and the other
// choices in turns.
std::vector<FoldCheck> fold_checks(const reduce::Case& pair,
                                   const std::vector<std::size_t>& counts);

testing::AssertionResult check_fold(KernelRunner& runner, const FoldCheck& check,
                                    std::mt19937& random);

// So many copies of up to so many bytes each, at any addresses.
testing::AssertionResult check_copies(KernelRunner& runner, int copies, std::size_t most_bytes,
                                      std::mt19937& random);

// Copies and a fold in one phase.
testing::AssertionResult check_both(KernelRunner& runner, const FoldCheck& check, int copies,
                                    std::mt19937& random);

}  // namespace tutti::cuda
