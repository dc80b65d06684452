#include "support/kernel_checks.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>

#include "cuda/reduction.hpp"
#include "tutti/dtypes.hpp"

namespace tutti::cuda {
namespace {

using reduce::Bytes;

constexpr unsigned char kUntouched = 0xab;
constexpr std::size_t kGap = 256;

// Where things are put one after the other, each with a gap of its own around it.
class Layout {
 public:
  explicit Layout(std::uint64_t base) : base_(base) {}
  std::uint64_t place(std::size_t bytes, std::size_t phase) {
    const std::uint64_t at = end_ + kGap + phase;
    end_ = (at + bytes + kGap - 1) / kGap * kGap;
    return base_ + at;
  }
  std::size_t bytes() const { return end_ + kGap; }

 private:
  std::uint64_t base_;
  std::uint64_t end_ = 0;
};

// A memory image, addressed as the kernel does.
class Image {
 public:
  Image(std::uint64_t base, std::size_t bytes) : base_(base), bytes_(bytes, kUntouched) {}
  unsigned char* at(std::uint64_t address) { return bytes_.data() + (address - base_); }
  void put(std::uint64_t address, const Bytes& bytes) {
    std::copy(bytes.begin(), bytes.end(), at(address));
  }
  const Bytes& bytes() const { return bytes_; }

 private:
  std::uint64_t base_;
  Bytes bytes_;
};

std::size_t phase_of(PlaceLayout layout, std::size_t element, int index) {
  const auto i = static_cast<std::size_t>(index);
  switch (layout) {
    case PlaceLayout::aligned: return 0;
    case PlaceLayout::alike: return (element == 1 ? 5 : 3 * element) % 16;
    case PlaceLayout::unlike: return (1 + 3 * i) * element % 16;
    case PlaceLayout::misaligned: return 1 + 2 * (i % 7);
  }
  return 0;
}

// Zeros, infinities, NaNs, subnormals and the largest numbers, of either sign.
std::uint64_t special_float(const DtypeInfo& info, std::mt19937& random) {
  const int man = info.mantissa_bits;
  const std::uint64_t exponents[] = {0, 1, (1ULL << info.exponent_bits) - 2,
                                     (1ULL << info.exponent_bits) - 1};
  const std::uint64_t mantissas[] = {0, 1, (1ULL << man) - 1, 1ULL << (man - 1)};
  return std::uint64_t{random() % 2} << (info.exponent_bits + man) |
         exponents[random() % 4] << man | mantissas[random() % 4];
}

Bytes input_of(const reduce::Case& pair, std::size_t count, std::mt19937& random) {
  Bytes bytes = reduce::random_input(pair, count, random() % 2 == 0, random);
  const DtypeInfo& info = info_of(pair.dtype);
  if (info.is_float())
    for (std::size_t i = random() % 3; i < count; i += 1 + random() % 6) {
      const std::uint64_t special = special_float(info, random);
      std::memcpy(bytes.data() + i * info.bytes, &special, info.bytes);
    }
  return bytes;
}

testing::AssertionResult compare(const Bytes& got, const Bytes& expected, std::uint64_t base,
                                 const Phase& phase, std::size_t growth) {
  const auto [x, y] = std::mismatch(expected.begin(), expected.end(), got.begin(), got.end());
  if (x == expected.end() && y == got.end()) return testing::AssertionSuccess();
  const auto at = static_cast<std::size_t>(x - expected.begin());
  std::string where = "outside of every target";
  const std::uint64_t bytes = phase.fold.bytes * growth;
  for (int t = 0; t < phase.fold.target_count; ++t)
    if (const std::uint64_t target = phase.fold.targets[t].at;
        base + at >= target && base + at < target + bytes)
      where = fmt::format("byte {} of target {}", base + at - target, t);
  return testing::AssertionFailure() << fmt::format("{}: {:#04x} and not {:#04x}", where, *y, *x);
}

// A phase, the memory it begins with, and the memory that it has to end with.
struct Scene {
  Phase phase{};
  Image before;
  Image after;
};

testing::AssertionResult play(KernelRunner& runner, const Scene& scene, Dtype dtype) {
  if (scene.before.bytes().size() > runner.capacity())
    return testing::AssertionFailure() << "the check needs more memory than there is";
  runner.write(scene.before.bytes());
  runner.run(scene.phase, dtype);
  const std::size_t growth = scene.phase.fold.widens != 0 ? sizeof(float) / size_of(dtype) : 1;
  return compare(runner.read(scene.before.bytes().size()), scene.after.bytes(), runner.base(),
                 scene.phase, growth);
}

// ---- building scenes

void lay_out_fold(Phase& phase, Layout& layout, const FoldCheck& check) {
  const std::size_t element = size_of(check.pair.dtype);
  const std::size_t result = reduce::folding_of(check.pair, true, 1).result_bytes();
  Fold& fold = phase.fold;
  fold.bytes = check.count * element;
  fold.operand_count = check.operands;
  fold.target_count = check.targets;
  for (int k = 0; k < check.operands; ++k)
    fold.operands[k] = {layout.place(fold.bytes, phase_of(check.layout, element, k)), -1, 0};
  for (int t = 0; t < check.targets; ++t) {
    if (check.in_place && t < check.operands)
      fold.targets[t] = fold.operands[check.operands - 1 - t];
    else
      fold.targets[t] = {layout.place(check.count * result, phase_of(check.layout, result, t + 2)),
                         -1, 0};
  }
}

void fill_in_fold(Scene& scene, const FoldCheck& check, std::mt19937& random) {
  Fold& fold = scene.phase.fold;
  const reduce::Folding folding = reduce::folding_of(check.pair, check.finish, check.operands + 1);
  std::vector<reduce::Operand> operands;
  for (int k = 0; k < check.operands; ++k) {
    fold.operands[k].raw = random() % 2;
    scene.before.put(fold.operands[k].at, input_of(check.pair, check.count, random));
    operands.push_back({scene.before.at(fold.operands[k].at), fold.operands[k].raw != 0});
  }
  set_reduction(fold, folding);
  Bytes result(check.count * folding.result_bytes());
  reduce::fold_reference(folding, result.data(), operands, check.count);
  scene.after = scene.before;
  for (int t = 0; t < check.targets; ++t) scene.after.put(fold.targets[t].at, result);
}

void lay_out_copies(Phase& phase, Layout& layout, int copies, std::size_t most_bytes,
                    std::mt19937& random) {
  phase.copy_count = static_cast<std::uint16_t>(copies);
  for (int i = 0; i < copies; ++i) {
    const std::size_t bytes = random() % 4 == 0 ? random() % 40 : random() % (most_bytes + 1);
    const std::size_t from = random() % 16;
    const std::size_t to = random() % 2 == 0 ? from : random() % 16;
    phase.copies[i] = {{layout.place(bytes, from), -1, 0}, layout.place(bytes, to), bytes};
  }
}

void fill_in_copies(Scene& scene, std::mt19937& random) {
  for (int i = 0; i < scene.phase.copy_count; ++i) {
    const Copy& copy = scene.phase.copies[i];
    Bytes bytes(copy.bytes);
    for (auto& byte : bytes) byte = static_cast<unsigned char>(random());
    scene.before.put(copy.from.at, bytes);
    scene.after.put(copy.from.at, bytes);
    scene.after.put(copy.to, bytes);
  }
}

Scene empty_scene(const Phase& phase, std::uint64_t base, std::size_t bytes) {
  return {phase, Image(base, bytes), Image(base, bytes)};
}

Phase plain_phase() {
  Phase phase{};
  phase.ranks = 1;
  phase.ticket = 1;
  return phase;
}

}  // namespace

std::string describe(const FoldCheck& check) {
  static constexpr const char* kLayouts[] = {"aligned", "alike", "unlike", "misaligned"};
  return fmt::format("{}, {} operands of {} elements, {}, {} targets{}{}",
                     reduce::name_of(check.pair), check.operands, check.count,
                     kLayouts[static_cast<int>(check.layout)], check.targets,
                     check.in_place ? ", in place" : "", check.finish ? ", finished" : "");
}

std::vector<FoldCheck> fold_checks(const reduce::Case& pair,
                                   const std::vector<std::size_t>& counts) {
  std::vector<FoldCheck> checks;
  int turn = 0;
  for (const int operands : {1, 2, 3, 8, 16})
    for (const std::size_t count : counts)
      for (int layout = 0; layout < 4; ++layout, ++turn) {
        FoldCheck check{pair, operands, count, static_cast<PlaceLayout>(layout)};
        check.targets = turn % 3 == 2 ? 16 : 1 + turn % 3;
        check.in_place = turn % 5 < 2 && !pair.widens;
        check.finish = turn % 4 != 3;
        checks.push_back(check);
      }
  return checks;
}

testing::AssertionResult check_fold(KernelRunner& runner, const FoldCheck& check,
                                    std::mt19937& random) {
  return check_both(runner, check, 0, random);
}

testing::AssertionResult check_copies(KernelRunner& runner, int copies, std::size_t most_bytes,
                                      std::mt19937& random) {
  Phase phase = plain_phase();
  Layout layout(runner.base());
  lay_out_copies(phase, layout, copies, most_bytes, random);
  Scene scene = empty_scene(phase, runner.base(), layout.bytes());
  fill_in_copies(scene, random);
  return play(runner, scene, Dtype::u8);
}

testing::AssertionResult check_both(KernelRunner& runner, const FoldCheck& check, int copies,
                                    std::mt19937& random) {
  Phase phase = plain_phase();
  Layout layout(runner.base());
  lay_out_fold(phase, layout, check);
  lay_out_copies(phase, layout, copies, 3000, random);
  Scene scene = empty_scene(phase, runner.base(), layout.bytes());
  fill_in_fold(scene, check, random);
  fill_in_copies(scene, random);
  testing::AssertionResult result = play(runner, scene, check.pair.dtype);
  if (!result) result << " (" << describe(check) << ")";
  return result;
}

}  // namespace tutti::cuda
