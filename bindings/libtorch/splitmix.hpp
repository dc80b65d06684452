// bindings/libtorch/splitmix.hpp - one number out of two, well mixed: splitmix64 (Steele et al. 2014).
#pragma once

#include <cstdint>

namespace tutti::libtorch {

inline std::uint64_t splitmix(std::uint64_t state, std::uint64_t word) {
  std::uint64_t z = state + 0x9e3779b97f4a7c15ULL * (word + 1);
  z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9ULL;
  z = (z ^ (z >> 27)) * 0x94d049bb133111ebULL;
  return z ^ (z >> 31);
}

}  // namespace tutti::libtorch
