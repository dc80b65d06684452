// bindings/libtorch/dropout_bits.hpp - the fast path of dropout on the CPU: Philox 4x32-10 over consecutive
// elements, in loops that compilers vectorise. Knows nothing of torch.
//
// Thread-safety  pure.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

namespace tutti::libtorch {

// One step's mask of one site: which key, and the upper half of all counters.
struct DropoutStream {
  std::array<std::uint32_t, 2> key{};
  std::array<std::uint32_t, 2> site{};  // micro-batch, site
};

inline constexpr std::uint32_t kPhiloxMultiplier[] = {0xD2511F53, 0xCD9E8D57};
inline constexpr std::uint32_t kPhiloxWeyl[] = {0x9E3779B9, 0xBB67AE85};
inline constexpr int kPhiloxRounds = 10;

// One block, written as in the paper: what the loops are tested against.
std::array<std::uint32_t, 4> philox(std::array<std::uint32_t, 4> counter,
                                    std::array<std::uint32_t, 2> key);

// out[i] = element first + i of the whole is kept ? in[i] · scale : 0. Kept: its word is at least `threshold`.
// Bf16 are given by their bits; they are multiplied in f32 and rounded once. out may be in.
struct DropoutRange {
  std::uint64_t first = 0;
  std::size_t count = 0;
};
void drop(const DropoutStream& stream, std::uint32_t threshold, float scale, DropoutRange range,
          const float* in, float* out);
void drop(const DropoutStream& stream, std::uint32_t threshold, double scale, DropoutRange range,
          const double* in, double* out);
void drop(const DropoutStream& stream, std::uint32_t threshold, float scale, DropoutRange range,
          const std::uint16_t* in, std::uint16_t* out);

}  // namespace tutti::libtorch
