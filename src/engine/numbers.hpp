// engine/numbers.hpp - two ways to count the collectives of a group.
//
// Ranks compare collectives by their *sequence*, in which those come first by which tutti itself sets a
// group up. People see *numbers*: the callers' own collectives, from 1.
#pragma once

#include <cstdint>

namespace tutti::engine {

// More than setting a group up ever takes.
inline constexpr std::uint64_t kSetUpSequences = 1024;

// 0: one of tutti's own.
constexpr std::uint64_t number_of(std::uint64_t sequence) noexcept {
  return sequence > kSetUpSequences ? sequence - kSetUpSequences : 0;
}

}  // namespace tutti::engine
