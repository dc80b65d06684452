// core/extents.hpp - a set of numbers that is few stretches of them: added, removed and asked for by range.
#pragma once

#include <algorithm>
#include <cstddef>
#include <iterator>
#include <map>
#include <vector>

namespace tutti {

struct Extent {
  std::size_t begin = 0;
  std::size_t end = 0;  // not in it
  std::size_t length() const { return end - begin; }
  bool operator==(const Extent&) const = default;
};

class Extents {
 public:
  // Whatever of it is there already stays.
  void add(Extent range) {
    if (range.begin >= range.end) return;
    auto at = first_after(range.begin);
    if (at != ends_.begin() && std::prev(at)->second >= range.begin) --at;
    for (; at != ends_.end() && at->first <= range.end; at = ends_.erase(at)) {
      range.begin = std::min(range.begin, at->first);
      range.end = std::max(range.end, at->second);
      length_ -= at->second - at->first;
    }
    ends_.emplace_hint(at, range.begin, range.end);
    length_ += range.length();
  }
  // Returns what was there, in order.
  std::vector<Extent> remove(Extent range) {
    std::vector<Extent> found = common(range);
    for (const Extent& part : found) {
      const auto at = std::prev(first_after(part.begin));
      const Extent whole{at->first, at->second};
      ends_.erase(at);
      if (whole.begin < part.begin) ends_.emplace(whole.begin, part.begin);
      if (part.end < whole.end) ends_.emplace(part.end, whole.end);
      length_ -= part.length();
    }
    return found;
  }
  // What of `range` is there, and what is not; both in order.
  std::vector<Extent> common(Extent range) const {
    std::vector<Extent> found;
    if (range.begin >= range.end) return found;
    auto at = first_after(range.begin);
    if (at != ends_.begin() && std::prev(at)->second > range.begin) --at;
    for (; at != ends_.end() && at->first < range.end; ++at)
      found.push_back({std::max(at->first, range.begin), std::min(at->second, range.end)});
    return found;
  }
  std::vector<Extent> missing(Extent range) const {
    std::vector<Extent> found;
    for (const Extent& there : common(range)) {
      if (range.begin < there.begin) found.push_back({range.begin, there.begin});
      range.begin = there.end;
    }
    if (range.begin < range.end) found.push_back(range);
    return found;
  }
  std::size_t length() const { return length_; }

 private:
  using Ends = std::map<std::size_t, std::size_t>;
  Ends::const_iterator first_after(std::size_t begin) const { return ends_.upper_bound(begin); }
  Ends::iterator first_after(std::size_t begin) { return ends_.upper_bound(begin); }

  Ends ends_;  // of each stretch, by where it begins; none touches another
  std::size_t length_ = 0;
};

}  // namespace tutti
