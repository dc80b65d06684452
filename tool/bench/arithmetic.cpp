#include "tool/bench/arithmetic.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

namespace tutti::tool {

double algbw_gbs(std::size_t bytes, double time_us) {
  return time_us > 0 ? static_cast<double>(bytes) / time_us * 1e-3 : 0;
}

Result<std::vector<std::size_t>> walk_sizes(std::size_t first, std::size_t last, double factor) {
  if (first > last)
    return Status(Code::invalid_argument,
                  fmt::format("-b {} is more than -e {}", size_words(first), size_words(last)));
  if (!(factor > 1) && first != last)
    return Status(Code::invalid_argument, fmt::format("-f {} must be more than 1", factor));
  if (first == 0 && last != 0)
    return Status(Code::invalid_argument, "-b 0 cannot be multiplied; begin with 1 at least");
  std::vector<std::size_t> sizes;
  for (double size = static_cast<double>(first); size <= static_cast<double>(last) + 0.5;
       size *= factor) {
    const auto bytes = static_cast<std::size_t>(size + 0.5);
    if (sizes.empty() || bytes != sizes.back()) sizes.push_back(bytes);
    if (size == 0 || first == last) break;
  }
  return sizes;
}

std::size_t fitting_bytes(Collective collective, std::size_t bytes, Dtype dtype, int ranks) {
  const CollectiveShape& shape = shape_of(collective);
  if (!shape.has_data()) return 0;
  const std::size_t unit =
      size_of(dtype) * (shape.has_parts() ? static_cast<std::size_t>(ranks) : 1);
  return std::max(bytes / unit, std::size_t{1}) * unit;
}

double geometric_mean(std::span<const double> values) {
  double sum = 0;
  std::size_t count = 0;
  for (const double value : values) {
    if (!(value > 0)) continue;
    sum += std::log(value);
    ++count;
  }
  return count == 0 ? 0 : std::exp(sum / static_cast<double>(count));
}

std::string size_words(std::size_t bytes) {
  constexpr const char* kUnits[] = {"B", "KiB", "MiB", "GiB"};
  std::size_t unit = 0;
  while (unit < 3 && bytes >= 1024 && bytes % 1024 == 0) {
    bytes /= 1024;
    ++unit;
  }
  return fmt::format("{} {}", bytes, kUnits[unit]);
}

}  // namespace tutti::tool
