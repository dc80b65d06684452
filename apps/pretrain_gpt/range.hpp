// apps/pretrain_gpt/range.hpp - which numbers a flag takes. All others are refused by the flag's name:
// none is taken for a default, rounded or wrapped around.
#pragma once

#include <CLI/CLI.hpp>
#include <cstdint>
#include <string>
#include <utility>

#include "tutti/status.hpp"

namespace pretrain {

// More steps than anybody has time for.
inline constexpr std::int64_t kMostIterations = 1'000'000'000'000;

// From `least` to `most`, both of them included.
CLI::Validator whole(std::int64_t least, std::int64_t most);

// Finite ones. `above`: not `least` itself; `below`: not `most` itself.
struct Real {
  double least = 0;
  double most = 1;
  bool above = false;
  bool below = false;
};
CLI::Validator real(Real range);

// Of flags that do not fit together.
inline tutti::Status misfit(std::string text) {
  return {tutti::Code::invalid_argument, std::move(text)};
}

}  // namespace pretrain
