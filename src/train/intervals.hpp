// train/intervals.hpp - stretches of time: their common part, and how long several last together.
//
// Pure. Times are ns of one clock. A stretch that ends before it begins is empty.
#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

namespace tutti::train {

struct Interval {
  std::int64_t begin = 0;
  std::int64_t end = 0;
  std::int64_t length() const { return std::max<std::int64_t>(end - begin, 0); }
};

inline Interval before(const Interval& stretch, std::int64_t moment) {
  return {stretch.begin, std::min(stretch.end, moment)};
}

// How long at least one of them lasts: what overlaps counts once.
inline std::int64_t length_of_union(std::vector<Interval> stretches) {
  std::sort(stretches.begin(), stretches.end(),
            [](const Interval& a, const Interval& b) { return a.begin < b.begin; });
  std::int64_t total = 0;
  Interval current;
  for (const Interval& next : stretches) {
    if (next.length() == 0) continue;
    if (current.length() > 0 && next.begin <= current.end) {
      current.end = std::max(current.end, next.end);
      continue;
    }
    total += current.length();
    current = next;
  }
  return total + current.length();
}

}  // namespace tutti::train
