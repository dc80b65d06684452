// tests/simulation/delay.hpp - publications of memory links become visible after a random delay.
#pragma once

#include <algorithm>
#include <cstdint>
#include <map>
#include <random>
#include <tuple>

#include "core/clock.hpp"
#include "transport/memory_link.hpp"

namespace tutti::simulation {

class Delay final : public transport::Visibility {
 public:
  Delay(VirtualClock& clock, std::uint64_t seed) : clock_(clock), random_(seed) {}

  bool visible(int from, int to, std::uint64_t slot) override {
    const auto key = std::tuple(from, to, slot);
    auto at = seen_.find(key);
    if (at == seen_.end())
      at =
          seen_.emplace(key, clock_.now() + Nanoseconds(random_() % 3 == 0 ? random_() % 50000 : 0))
              .first;
    if (at->second > clock_.now()) return false;
    seen_.erase(at);
    return true;
  }
  Nanoseconds next() const {
    Nanoseconds next = Nanoseconds::max();
    for (const auto& [key, when] : seen_)
      if (when > clock_.now()) next = std::min(next, when);
    return next;
  }

 private:
  VirtualClock& clock_;
  std::mt19937_64 random_;
  std::map<std::tuple<int, int, std::uint64_t>, Nanoseconds> seen_;
};

}  // namespace tutti::simulation
