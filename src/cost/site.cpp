#include "cost/site.hpp"

#include <algorithm>
#include <unordered_map>

namespace tutti::cost {
namespace {

int count_of(const std::vector<int>& numbers) {
  return numbers.empty() ? 0 : 1 + *std::max_element(numbers.begin(), numbers.end());
}

}  // namespace

int Site::hosts() const { return count_of(host_of); }

bool Site::is_crowded() const {
  if (cores == 0) return false;
  std::vector<int> company(static_cast<std::size_t>(count_of(machine_of)));
  for (const int machine : machine_of)
    if (++company[static_cast<std::size_t>(machine)] > cores) return true;
  return false;
}

std::vector<int> dense(const std::vector<int>& names) {
  std::unordered_map<int, int> number;
  std::vector<int> numbers;
  numbers.reserve(names.size());
  for (const int name : names)
    numbers.push_back(number.try_emplace(name, static_cast<int>(number.size())).first->second);
  return numbers;
}

}  // namespace tutti::cost
