#include "dropout_bits.hpp"

#include <algorithm>
#include <bit>

// Compiled for several vector widths, of which the loader takes the best; integers have the same bits in all.
#if defined(__x86_64__) && defined(__GNUC__) && !defined(__clang__)
#define TUTTI_WIDE __attribute__((target_clones("avx512f", "avx2", "default")))
#else
#define TUTTI_WIDE
#endif

namespace tutti::libtorch {

namespace {

constexpr std::size_t kBlocks = 128;  // at a time: bits that stay in the first cache

struct BitsOfBlocks {
  std::uint32_t words[4 * kBlocks];
};

// Blocks first … first + blocks − 1, word after word.
TUTTI_WIDE void fill(const DropoutStream& stream, std::uint64_t first, std::size_t blocks,
                     BitsOfBlocks& bits) {
  for (std::size_t j = 0; j < blocks; ++j) {
    const std::uint64_t block = first + j;
    auto c0 = static_cast<std::uint32_t>(block), c1 = static_cast<std::uint32_t>(block >> 32);
    std::uint32_t c2 = stream.site[0], c3 = stream.site[1];
    std::uint32_t k0 = stream.key[0], k1 = stream.key[1];
    for (int round = 0; round < kPhiloxRounds; ++round) {
      const std::uint64_t p0 = std::uint64_t{kPhiloxMultiplier[0]} * c0;
      const std::uint64_t p1 = std::uint64_t{kPhiloxMultiplier[1]} * c2;
      c0 = static_cast<std::uint32_t>(p1 >> 32) ^ c1 ^ k0;
      c1 = static_cast<std::uint32_t>(p1);
      c2 = static_cast<std::uint32_t>(p0 >> 32) ^ c3 ^ k1;
      c3 = static_cast<std::uint32_t>(p0);
      k0 += kPhiloxWeyl[0];
      k1 += kPhiloxWeyl[1];
    }
    bits.words[4 * j] = c0;
    bits.words[4 * j + 1] = c1;
    bits.words[4 * j + 2] = c2;
    bits.words[4 * j + 3] = c3;
  }
}

TUTTI_WIDE void apply(const std::uint32_t* words, std::uint32_t threshold, float scale,
                      std::size_t count, const float* in, float* out) {
  for (std::size_t i = 0; i < count; ++i) out[i] = words[i] >= threshold ? in[i] * scale : 0.0F;
}

TUTTI_WIDE void apply(const std::uint32_t* words, std::uint32_t threshold, double scale,
                      std::size_t count, const double* in, double* out) {
  for (std::size_t i = 0; i < count; ++i) out[i] = words[i] >= threshold ? in[i] * scale : 0.0;
}

// To the nearest, ties to even; a NaN stays one. Without branches, or loops would not be vectorised.
inline std::uint32_t rounded(float value) {
  const auto bits = std::bit_cast<std::uint32_t>(value);
  const std::uint32_t nearest = bits + 0x7FFF + (bits >> 16 & 1);
  const bool nan = (bits & 0x7FFFFFFF) > 0x7F800000;
  return (nan ? bits | 0x400000 : nearest) >> 16;
}

TUTTI_WIDE void apply(const std::uint32_t* words, std::uint32_t threshold, float scale,
                      std::size_t count, const std::uint16_t* in, std::uint16_t* out) {
  for (std::size_t i = 0; i < count; ++i) {
    const auto value = std::bit_cast<float>(std::uint32_t{in[i]} << 16);
    const std::uint32_t kept = rounded(value * scale);
    out[i] = static_cast<std::uint16_t>(words[i] >= threshold ? kept : 0);
  }
}

template <class Element, class Scale>
void drop_range(const DropoutStream& stream, std::uint32_t threshold, Scale scale,
                DropoutRange range, const Element* in, Element* out) {
  BitsOfBlocks bits;
  for (std::size_t done = 0; done < range.count;) {
    const std::uint64_t element = range.first + done;
    const std::size_t skipped = element % 4;  // of the first block
    const std::size_t count = std::min(4 * kBlocks - skipped, range.count - done);
    fill(stream, element / 4, (skipped + count + 3) / 4, bits);
    apply(bits.words + skipped, threshold, scale, count, in + done, out + done);
    done += count;
  }
}

}  // namespace

std::array<std::uint32_t, 4> philox(std::array<std::uint32_t, 4> counter,
                                    std::array<std::uint32_t, 2> key) {
  for (int round = 0; round < kPhiloxRounds; ++round) {
    const std::uint64_t p0 = std::uint64_t{kPhiloxMultiplier[0]} * counter[0];
    const std::uint64_t p1 = std::uint64_t{kPhiloxMultiplier[1]} * counter[2];
    counter = {
        static_cast<std::uint32_t>(p1 >> 32) ^ counter[1] ^ key[0], static_cast<std::uint32_t>(p1),
        static_cast<std::uint32_t>(p0 >> 32) ^ counter[3] ^ key[1], static_cast<std::uint32_t>(p0)};
    key = {key[0] + kPhiloxWeyl[0], key[1] + kPhiloxWeyl[1]};
  }
  return counter;
}

void drop(const DropoutStream& stream, std::uint32_t threshold, float scale, DropoutRange range,
          const float* in, float* out) {
  drop_range(stream, threshold, scale, range, in, out);
}
void drop(const DropoutStream& stream, std::uint32_t threshold, double scale, DropoutRange range,
          const double* in, double* out) {
  drop_range(stream, threshold, scale, range, in, out);
}
void drop(const DropoutStream& stream, std::uint32_t threshold, float scale, DropoutRange range,
          const std::uint16_t* in, std::uint16_t* out) {
  drop_range(stream, threshold, scale, range, in, out);
}

}  // namespace tutti::libtorch
