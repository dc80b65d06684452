// Long runs are folded by carry-less multiplication, several lanes beside each other, and the last lane is
// divided by the crc32 instruction; short ones and ends go through that instruction alone, which takes
// eight bytes in three cycles.
#include "core/crc32c.hpp"

#include <array>
#include <cstring>

#if defined(__x86_64__)
#include <immintrin.h>
#endif

namespace tutti {
namespace {

constexpr std::uint32_t kPolynomial = 0x82f63b78;  // bits reversed

constexpr std::uint32_t times_x(std::uint32_t value) {
  return value >> 1 ^ ((value & 1) != 0 ? kPolynomial : 0);
}

constexpr std::array<std::uint32_t, 256> make_table() {
  std::array<std::uint32_t, 256> table{};
  for (std::uint32_t byte = 0; byte < table.size(); ++byte) {
    table[byte] = byte;
    for (int bit = 0; bit < 8; ++bit) table[byte] = times_x(table[byte]);
  }
  return table;
}
constexpr std::array<std::uint32_t, 256> kTable = make_table();

std::uint32_t extend_plain(std::uint32_t crc, const unsigned char* at, std::size_t bytes) noexcept {
  for (; bytes > 0; --bytes) crc = crc >> 8 ^ kTable[(crc ^ *at++) & 0xff];
  return crc;
}

#if defined(__x86_64__)

// x^power modulo the polynomial.
constexpr std::int64_t power_of_x(int power) {
  std::uint32_t value = 0x80000000;
  for (; power > 0; --power) value = times_x(value);
  return value;
}

// By what the two halves of 16 bytes are multiplied to move them `bytes` bytes on.
struct Fold {
  std::int64_t low, high;
};
constexpr Fold fold_by(int bytes) {
  return {power_of_x(8 * bytes + 31), power_of_x(8 * bytes - 33)};
}
constexpr Fold kBy16 = fold_by(16), kBy32 = fold_by(32), kBy64 = fold_by(64), kBy128 = fold_by(128);

[[gnu::target("sse4.2")]] std::uint32_t extend_sse42(std::uint32_t crc, const unsigned char* at,
                                                     std::size_t bytes) noexcept {
  std::uint64_t wide = crc;
  for (; bytes >= 8; bytes -= 8, at += 8) {
    std::uint64_t word = 0;
    std::memcpy(&word, at, sizeof word);
    wide = _mm_crc32_u64(wide, word);
  }
  crc = static_cast<std::uint32_t>(wide);
  for (; bytes > 0; --bytes) crc = _mm_crc32_u8(crc, *at++);
  return crc;
}

[[gnu::target("sse4.2,pclmul")]] inline __m128i folded(__m128i lane, Fold by, __m128i next) {
  const __m128i factors = _mm_set_epi64x(by.high, by.low);
  const __m128i low = _mm_clmulepi64_si128(lane, factors, 0x00);
  const __m128i high = _mm_clmulepi64_si128(lane, factors, 0x11);
  return _mm_xor_si128(_mm_xor_si128(low, high), next);
}

[[gnu::target("sse4.2,pclmul")]] inline __m128i load(const unsigned char* at) {
  return _mm_loadu_si128(reinterpret_cast<const __m128i*>(at));
}

// What is left of a lane of 16 bytes.
[[gnu::target("sse4.2,pclmul")]] inline std::uint32_t divided(__m128i lane) {
  const auto low = static_cast<std::uint64_t>(_mm_extract_epi64(lane, 0));
  const auto high = static_cast<std::uint64_t>(_mm_extract_epi64(lane, 1));
  return static_cast<std::uint32_t>(_mm_crc32_u64(_mm_crc32_u64(0, low), high));
}

[[gnu::target("sse4.2,pclmul")]] std::uint32_t extend_pclmul(std::uint32_t crc,
                                                             const unsigned char* at,
                                                             std::size_t bytes) noexcept {
  constexpr std::size_t kStep = 64;
  if (bytes < 2 * kStep) return extend_sse42(crc, at, bytes);
  __m128i lanes[4];
  for (int i = 0; i < 4; ++i) lanes[i] = load(at + 16 * i);
  lanes[0] = _mm_xor_si128(lanes[0], _mm_cvtsi32_si128(static_cast<int>(crc)));
  for (at += kStep, bytes -= kStep; bytes >= kStep; at += kStep, bytes -= kStep)
    for (int i = 0; i < 4; ++i) lanes[i] = folded(lanes[i], kBy64, load(at + 16 * i));
  for (int i = 1; i < 4; ++i) lanes[i] = folded(lanes[i - 1], kBy16, lanes[i]);
  return extend_sse42(divided(lanes[3]), at, bytes);
}

#define TUTTI_WIDE [[gnu::target("sse4.2,pclmul,avx2,vpclmulqdq")]]

TUTTI_WIDE inline __m256i folded(__m256i lane, Fold by, __m256i next) {
  const __m256i factors = _mm256_set_epi64x(by.high, by.low, by.high, by.low);
  const __m256i low = _mm256_clmulepi64_epi128(lane, factors, 0x00);
  const __m256i high = _mm256_clmulepi64_epi128(lane, factors, 0x11);
  return _mm256_xor_si256(_mm256_xor_si256(low, high), next);
}

TUTTI_WIDE inline __m256i load_wide(const unsigned char* at) {
  return _mm256_loadu_si256(reinterpret_cast<const __m256i*>(at));
}

TUTTI_WIDE std::uint32_t extend_wide(std::uint32_t crc, const unsigned char* at,
                                     std::size_t bytes) noexcept {
  constexpr std::size_t kStep = 128;
  if (bytes < 2 * kStep) return extend_pclmul(crc, at, bytes);
  __m256i lanes[4];
  for (int i = 0; i < 4; ++i) lanes[i] = load_wide(at + 32 * i);
  lanes[0] =
      _mm256_xor_si256(lanes[0], _mm256_zextsi128_si256(_mm_cvtsi32_si128(static_cast<int>(crc))));
  for (at += kStep, bytes -= kStep; bytes >= kStep; at += kStep, bytes -= kStep)
    for (int i = 0; i < 4; ++i) lanes[i] = folded(lanes[i], kBy128, load_wide(at + 32 * i));
  for (int i = 1; i < 4; ++i) lanes[i] = folded(lanes[i - 1], kBy32, lanes[i]);
  const __m128i last =
      folded(_mm256_castsi256_si128(lanes[3]), kBy16, _mm256_extracti128_si256(lanes[3], 1));
  return extend_sse42(divided(last), at, bytes);
}

#undef TUTTI_WIDE
#endif

using Extend = std::uint32_t (*)(std::uint32_t, const unsigned char*, std::size_t) noexcept;

Extend best_here() {
#if defined(__x86_64__)
  __builtin_cpu_init();
  if (!__builtin_cpu_supports("sse4.2")) return extend_plain;
  if (!__builtin_cpu_supports("pclmul")) return extend_sse42;
  if (!__builtin_cpu_supports("avx2") || !__builtin_cpu_supports("vpclmulqdq"))
    return extend_pclmul;
  return extend_wide;
#else
  return extend_plain;
#endif
}

std::uint32_t run(Extend extend, const void* data, std::size_t bytes,
                  std::uint32_t before) noexcept {
  return ~extend(~before, static_cast<const unsigned char*>(data), bytes);
}

}  // namespace

std::uint32_t crc32c(const void* data, std::size_t bytes, std::uint32_t before) noexcept {
  static const Extend extend = best_here();
  return run(extend, data, bytes, before);
}

std::uint32_t crc32c_plain(const void* data, std::size_t bytes, std::uint32_t before) noexcept {
  return run(extend_plain, data, bytes, before);
}

}  // namespace tutti
