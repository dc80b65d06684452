// fold_to: the bits of fold() in every destination, and not a byte beside them.
#include <gtest/gtest.h>

#include <cstring>

#include "unit/reduce/fold_cases.hpp"

namespace tutti::reduce {
namespace {

constexpr unsigned char kUntouched = 0xab;

// A buffer whose first byte is `phase` bytes into a cache line, with guards on both sides.
class Guarded {
 public:
  Guarded(std::size_t bytes, std::size_t phase) : bytes_(bytes) {
    storage_.assign(bytes + 3 * kLineBytes, kUntouched);
    const auto address = reinterpret_cast<std::uintptr_t>(storage_.data());
    offset_ = kLineBytes + -address % kLineBytes + phase;
  }
  unsigned char* data() { return storage_.data() + offset_; }
  bool holds(const Bytes& expected) const {
    const auto begin = storage_.begin() + static_cast<long>(offset_);
    const auto end = begin + static_cast<long>(bytes_);
    const auto untouched = [](unsigned char byte) { return byte == kUntouched; };
    return std::equal(expected.begin(), expected.end(), begin, end) &&
           std::all_of(storage_.begin(), begin, untouched) &&
           std::all_of(end, storage_.end(), untouched);
  }

 private:
  std::size_t bytes_;
  std::size_t offset_ = 0;
  Bytes storage_;
};

// Where destination d begins within a line: all alike, all elements aligned, or any odd place.
std::size_t phase_of(int kind, std::size_t d, std::size_t element) {
  if (kind == 0) return 0;
  return kind == 1 ? (3 + d / 2) * element % kLineBytes : (5 * d + 1) % kLineBytes;
}

class FoldToEveryPair : public testing::TestWithParam<Case> {
 protected:
  // Folds k random operands of `count` elements into n fresh places, at every level.
  void check(int k, std::size_t n, std::size_t count, int phases, std::mt19937& random) {
    const Folding folding = folding_of(GetParam(), random() % 4 != 0, k);
    const Inputs inputs(GetParam(), k, count, random);
    const std::size_t element = folding.result_bytes();
    Bytes expected(count * element);
    fold_reference(folding, expected.data(), inputs.operands, count);
    for (const SimdLevel level : levels())
      for (const Stores stores : {Stores::cached, Stores::streaming}) {
        std::vector<Guarded> places;
        std::vector<void*> destinations;
        for (std::size_t d = 0; d < n; ++d)
          places.emplace_back(expected.size(), phase_of(phases, d, element));
        for (Guarded& place : places) destinations.push_back(place.data());
        fold_to_at(level, folding, destinations, inputs.operands, count, stores);
        for (std::size_t d = 0; d < n; ++d)
          ASSERT_TRUE(places[d].holds(expected))
              << describe(folding, inputs.operands.size(), count) << ", place " << d << " of " << n
              << ", level " << static_cast<int>(level) << ", stores " << static_cast<int>(stores)
              << ", phases " << phases;
      }
  }
};

// Whose result fits where an operand lies.
class FoldToOperands : public FoldToEveryPair {};

TEST_P(FoldToEveryPair, gives_the_reference_bits_at_every_length) {
  std::mt19937 random(21);
  for (std::size_t count = 0; count <= 300; ++count)
    check(1 + static_cast<int>(count % 4), 1 + count % 3, count, static_cast<int>(count / 3 % 3),
          random);
  for (const std::size_t count : {1031, 4096, 9001}) check(2, 2, count, count % 3, random);
}

TEST_P(FoldToEveryPair, gives_the_reference_bits_in_every_one_of_many_destinations) {
  std::mt19937 random(22);
  for (std::size_t n = 1; n <= 16; ++n)
    for (int phases = 0; phases < 3; ++phases)
      check(static_cast<int>(n), n, 67 + 29 * n, phases, random);
}

// The in-place all_reduce: all operands are destinations, some more destinations are not.
TEST_P(FoldToOperands, may_write_over_all_of_its_operands_and_elsewhere) {
  std::mt19937 random(23);
  constexpr std::size_t kCount = 517;
  for (const int k : {1, 2, 3, 8})
    for (const Stores stores : {Stores::cached, Stores::streaming})
      for (const SimdLevel level : levels()) {
        const Folding folding = folding_of(GetParam(), true, k);
        const Inputs inputs(GetParam(), k, kCount, random);
        Bytes expected(kCount * size_of(folding.dtype));
        fold_reference(folding, expected.data(), inputs.operands, kCount);
        Guarded elsewhere(expected.size(), 0);
        std::vector<void*> destinations{elsewhere.data()};
        for (const Operand& operand : inputs.operands)
          destinations.push_back(const_cast<void*>(operand.data));
        fold_to_at(level, folding, destinations, inputs.operands, kCount, stores);
        ASSERT_TRUE(elsewhere.holds(expected));
        for (const void* place : destinations)
          ASSERT_EQ(std::memcmp(place, expected.data(), expected.size()), 0)
              << describe(folding, inputs.operands.size(), kCount);
      }
}

INSTANTIATE_TEST_SUITE_P(FoldTo, FoldToEveryPair, testing::ValuesIn(all_cases()),
                         [](const auto& test) { return name_of(test.param); });
INSTANTIATE_TEST_SUITE_P(FoldTo, FoldToOperands, testing::ValuesIn(sensible_cases()),
                         [](const auto& test) { return name_of(test.param); });

TEST(FoldTo, writes_to_sixty_four_places) {
  const std::vector<float> a(1000, 1.5F);
  const std::vector<float> b(1000, 2.0F);
  const Operand operands[] = {{a.data(), true}, {b.data(), true}};
  for (const Stores stores : {Stores::cached, Stores::streaming}) {
    std::vector<std::vector<float>> results(kMaxDestinations, std::vector<float>(1000));
    std::vector<void*> places;
    for (auto& result : results) places.push_back(result.data());
    fold_to({Dtype::f32, ReduceOp::sum, true, 2}, places, operands, 1000, stores);
    for (const auto& result : results) EXPECT_EQ(result, std::vector<float>(1000, 3.5F));
  }
}

TEST(FoldTo, a_single_operand_is_copied_bit_by_bit_over_many_blocks) {
  const std::vector<std::uint32_t> x(50'000, 0xffa00001U);
  std::vector<std::uint32_t> y(x.size());
  std::vector<std::uint32_t> z(x.size());
  void* const places[] = {y.data(), const_cast<std::uint32_t*>(x.data()), z.data()};
  const Operand one[] = {{x.data(), true}};
  fold_to({Dtype::f32, ReduceOp::sum, true, 1}, places, one, x.size(), Stores::streaming);
  EXPECT_EQ(x, y);
  EXPECT_EQ(x, z);
}

}  // namespace
}  // namespace tutti::reduce
