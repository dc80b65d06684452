#include "support/update_checks.hpp"

#include <cmath>
#include <cstring>

#include "reduce/fold.hpp"
#include "train/exact_sum.hpp"
#include "train/kernels.hpp"
#include "unit/train/kernel_cases.hpp"

namespace tutti::cuda {
namespace {

using reduce::Bytes;
using train::Mix;
using train::numbers;

constexpr unsigned char kGuardByte = 0xab;

// Arrays in the runner's memory and, alike, in this process's, between bytes that nobody may touch.
class Arena {
 public:
  explicit Arena(KernelRunner& runner) : runner_(runner) {}

  // Returns where it begins, from both bases on.
  template <class T>
  std::size_t add(const std::vector<T>& values, std::size_t offset) {
    const std::size_t at = (bytes_.size() + 63) / 64 * 64 + 64 + offset * sizeof(T);
    bytes_.resize(at, kGuardByte);
    const auto* from = reinterpret_cast<const unsigned char*>(values.data());
    bytes_.insert(bytes_.end(), from, from + values.size() * sizeof(T));
    bytes_.resize(bytes_.size() + 64, kGuardByte);
    return at;
  }
  std::uint64_t address(std::size_t at) const { return runner_.base() + at; }
  template <class T>
  T* here(std::size_t at) {
    return reinterpret_cast<T*>(bytes_.data() + at);
  }

  void send() { runner_.write(bytes_); }
  Bytes result() { return runner_.read(bytes_.size()); }
  // What is here is what is to be there.
  testing::AssertionResult matches(const char* what) {
    const Bytes there = result();
    for (std::size_t i = 0; i < bytes_.size(); ++i)
      if (there[i] != bytes_[i])
        return testing::AssertionFailure() << what << ": byte " << i << " of " << bytes_.size();
    return testing::AssertionSuccess();
  }

 private:
  KernelRunner& runner_;
  Bytes bytes_;
};

// Pieces with gaps between them.
template <class Factors>
void cut(UpdateJob<Factors>& job, std::size_t count, std::mt19937& random) {
  std::size_t at = 0;
  while (at < count && job.piece_count < kMostPieces) {
    const std::size_t length = std::min<std::size_t>(count - at, 1 + random() % (count / 3 + 1));
    const auto which = static_cast<std::uint32_t>(random() % 3);
    job.pieces[job.piece_count++] = {at, length, which, 0};
    at += length + random() % 9;
  }
}

template <class Factors, class Expect>
testing::AssertionResult check_update(KernelRunner& runner, std::size_t count, Mix mix,
                                      std::size_t offset, const Factors (&factors)[3],
                                      std::mt19937& random, Expect expect) {
  Arena arena(runner);
  std::size_t places[4];
  for (std::size_t& place : places) place = arena.add(numbers(count, mix, random), offset);
  UpdateJob<Factors> job{};
  job.weights = arena.address(places[0]);
  job.gradient = arena.address(places[1]);
  for (int m = 0; m < 2; ++m) job.moments[m] = arena.address(places[2 + m]);
  std::copy(std::begin(factors), std::end(factors), job.factors);
  job.factor_count = 3;
  cut(job, count, random);
  arena.send();
  runner.run(job);
  for (int i = 0; i < job.piece_count; ++i) {
    const UpdatePiece& piece = job.pieces[i];
    const auto part = [&](std::size_t place) { return arena.here<float>(place) + piece.first; };
    expect(factors[piece.factors], part(places[0]), part(places[1]), part(places[2]),
           part(places[3]), piece.count);
  }
  return arena.matches("an update");
}

testing::AssertionResult check_adamw(KernelRunner& runner, std::size_t count, Mix mix,
                                     std::size_t offset, std::mt19937& random) {
  const reduce::AdamWFactors factors[3] = {
      {0.37F, 0.9999F, 0.9F, 0.1F, 0.95F, 0.05F, 3e-3F, 0.31F, 1e-8F},
      {1.0F, 1.0F, 0.5F, 0.5F, 0.999F, 0.001F, 0.1F, 1e-3F, 1e-6F},
      {-2.5F, 0.5F, 0.0F, 1.0F, 0.0F, 1.0F, 1e-3F, 1.0F, 0.0F}};
  return check_update(runner, count, mix, offset, factors, random, train::reference::adamw);
}

testing::AssertionResult check_sgd(KernelRunner& runner, std::size_t count, Mix mix,
                                   std::size_t offset, std::mt19937& random) {
  const reduce::SgdFactors factors[3] = {{0.37F, 0.01F, 0.9F, 0.05F, false},
                                         {0.37F, 0.01F, 0.9F, 0.05F, true},
                                         {1.0F, 0.0F, 0.0F, 1.0F, false}};
  return check_update(runner, count, mix, offset, factors, random,
                      [](const reduce::SgdFactors& f, float* w, const float* g, float* b, float*,
                         std::size_t n) { train::reference::sgd(f, w, g, b, n); });
}

template <Dtype dtype>
testing::AssertionResult check_conversions(KernelRunner& runner, std::size_t count, Mix mix,
                                           std::size_t offset, std::mt19937& random) {
  Arena arena(runner);
  const std::size_t wide = arena.add(numbers(count, mix, random), offset);
  const std::size_t narrow = arena.add(std::vector<std::uint16_t>(count), offset + 1);
  const std::size_t aligned = arena.add(std::vector<std::uint16_t>(count), 0);
  const std::size_t back = arena.add(std::vector<float>(count), offset);
  arena.send();
  const bool is_f16 = dtype == Dtype::f16;
  runner.run(NarrowCall{{arena.address(wide), arena.address(narrow), count, is_f16}});
  runner.run(NarrowCall{{arena.address(wide), arena.address(aligned), count, is_f16}});
  runner.run(WidenCall{{arena.address(aligned), arena.address(back), count, is_f16}});
  train::reference::narrow(dtype, arena.here<float>(wide), arena.here<std::uint16_t>(narrow),
                           count);
  train::reference::narrow(dtype, arena.here<float>(wide), arena.here<std::uint16_t>(aligned),
                           count);
  train::reference::widen(dtype, arena.here<std::uint16_t>(aligned), arena.here<float>(back),
                          count);
  return arena.matches("narrow and widen");
}

testing::AssertionResult check_sums(KernelRunner& runner, std::size_t count, Mix mix,
                                    std::size_t offset, std::mt19937& random) {
  Arena arena(runner);
  const std::size_t from = arena.add(numbers(count, mix, random), offset);
  const std::size_t to = arena.add(numbers(count, mix, random), offset);
  const std::size_t elsewhere = arena.add(numbers(count, mix, random), offset + 1);
  arena.send();
  for (const std::size_t target : {to, elsewhere}) {
    runner.run(AddJob{arena.address(from), arena.address(target), count});
    const reduce::Operand operands[] = {{arena.here<float>(target)}, {arena.here<float>(from)}};
    reduce::fold_reference({Dtype::f32, ReduceOp::sum}, arena.here<float>(target), operands, count);
  }
  return arena.matches("sums");
}

// The sum of those that are finite, and which is the first that is not.
GradientFindings expected_squares(const float* values, std::size_t count) {
  GradientFindings findings{};
  train::ExactSum exact;
  train::add_squares(values, count, exact);
  findings.not_finite = count - train::reference::first_not_finite(values, count);
  const auto limbs = exact.limbs();
  std::copy(limbs.begin(), limbs.end(), findings.limbs);
  return findings;
}

// Carries may still be in them.
void put_carries_away(GradientFindings& findings) {
  std::array<std::int64_t, train::ExactSum::kLimbs> limbs;
  std::copy(std::begin(findings.limbs), std::end(findings.limbs), limbs.begin());
  train::ExactSum sum;
  sum.add_limbs(limbs);
  limbs = sum.limbs();
  std::copy(limbs.begin(), limbs.end(), findings.limbs);
}

testing::AssertionResult check_questions(KernelRunner& runner, std::size_t count, Mix mix,
                                         std::size_t offset, std::mt19937& random) {
  Arena arena(runner);
  const std::size_t values = arena.add(numbers(count, mix, random), offset);
  const std::size_t squares = arena.add(std::vector<GradientFindings>(1), 0);
  const std::size_t found = arena.add(std::vector<GradientFindings>(1), 0);
  auto* const here = arena.here<float>(values);
  if (mix == Mix::tame && count > 0 && random() % 2 == 0)
    here[random() % count] = std::numeric_limits<float>::infinity();
  arena.send();
  runner.run(SquaresCall{{arena.address(values), count, arena.address(squares)}});
  runner.run(FindCall{{arena.address(values), count, arena.address(found)}});
  const Bytes there = arena.result();
  GradientFindings summed{}, first{};
  std::memcpy(&summed, there.data() + squares, sizeof summed);
  std::memcpy(&first, there.data() + found, sizeof first);
  put_carries_away(summed);
  const GradientFindings expected = expected_squares(here, count);
  if (std::memcmp(&summed, &expected, sizeof expected) != 0)
    return testing::AssertionFailure() << "sums of squares, or which of them is not finite";
  if (count - first.not_finite != train::reference::first_not_finite(here, count))
    return testing::AssertionFailure()
           << "the first that is not finite is not " << first.not_finite;
  return testing::AssertionSuccess();
}

}  // namespace

testing::AssertionResult check_updates(KernelRunner& runner, std::size_t count,
                                       std::mt19937& random) {
  for (const Mix mix : {Mix::tame, Mix::wild})
    for (const std::size_t offset : {0, 1, 3})
      for (const auto check : {check_adamw, check_sgd, check_conversions<Dtype::bf16>,
                               check_conversions<Dtype::f16>, check_sums, check_questions})
        if (auto result = check(runner, count, mix, offset, random); !result)
          return result << ", at offset " << offset << (mix == Mix::tame ? ", tame" : ", wild");
  return testing::AssertionSuccess();
}

}  // namespace tutti::cuda
