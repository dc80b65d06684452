#include "cost/continuation.hpp"

#include <algorithm>
#include <bit>
#include <cmath>

namespace tutti::cost {
namespace {

constexpr int kPlayedRanks = 256;  // or more, where hosts have more than a few ranks

// What a factor of four adds, relative to what the one before it added. Times grow like the ranks,
// their root or their logarithm; what lies between is a tree that grew unevenly.
double growth_of(double near, double far) {
  if (near == 0) return 1;
  const double ratio = std::max(0.0, far / near);
  if (ratio <= 1) return ratio;
  return ratio < std::sqrt(2) ? 1 : ratio < 2 * std::sqrt(2) ? 2 : 4;
}

// Two to six hosts: what the number itself becomes when it is divided by four, or else three.
int fewest_ranks(int ranks, int per_host) {
  if (std::has_single_bit(static_cast<unsigned>(ranks)))
    return static_cast<int>(std::bit_ceil(static_cast<unsigned>(2 * per_host)));
  while (ranks >= 8 * per_host && ranks % (4 * per_host) == 0) ranks /= 4;
  return ranks >= 2 * per_host && ranks < 6 * per_host ? ranks : 3 * per_host;
}

}  // namespace

std::array<int, 3> fewer_ranks(int ranks, int per_host) {
  int first = fewest_ranks(ranks, per_host);
  while (64 * first <= kPlayedRanks) first *= 4;
  return {first, 4 * first, 16 * first};
}

double continued(const std::array<double, 3>& values, const std::array<int, 3>& fewer, int ranks) {
  const double near = values[1] - values[0];
  const double far = values[2] - values[1];
  const double growth = growth_of(near, far);
  const double fours = std::log(static_cast<double>(ranks) / fewer[2]) / std::log(4.0);
  // far · (ρ + ρ² + …), also for a part of a factor of four.
  const double more =
      std::abs(growth - 1) < 1e-6 ? fours : growth * (std::pow(growth, fours) - 1) / (growth - 1);
  return values[2] + far * more;
}

Result<CollectiveTime> CollectiveTime::of_all(
    int ranks, const std::function<Result<Playable>(int ranks)>& with) {
  auto playable = with(ranks);
  if (!playable.ok()) return playable.status();
  CollectiveTime time;
  time.ranks_ = ranks;
  time.played_.push_back(*std::move(playable));
  return time;
}

Result<CollectiveTime> CollectiveTime::of(int ranks, int per_host,
                                          const std::function<Result<Playable>(int ranks)>& with) {
  CollectiveTime time;
  time.ranks_ = ranks;
  time.fewer_ = fewer_ranks(ranks, per_host);
  std::vector<int> counts(time.fewer_.begin(), time.fewer_.end());
  if (ranks <= counts.back()) counts = {ranks};
  for (const int count : counts) {
    auto playable = with(count);
    // Some algorithms exist for these ranks, and not for a few of them.
    if (!playable.ok() && count < ranks) return of_all(ranks, with);
    if (!playable.ok()) return playable.status();
    time.played_.push_back(*std::move(playable));
    if (counts.size() > 1) {
      const Playable& last = time.played_.back();
      time.nothing_.push_back(last.simulation.run(last.site, 0));
    }
  }
  return time;
}

Simulated CollectiveTime::with(double bytes) const {
  std::vector<Simulated> known;
  for (const Playable& each : played_) known.push_back(each.simulation.run(each.site, bytes));
  if (known.size() == 1) return known[0];
  const auto go_on = [&](auto of) { return continued({of(0U), of(1U), of(2U)}, fewer_, ranks_); };
  const double nothing = go_on([&](std::size_t i) { return nothing_[i].seconds; });
  const double more = go_on([&](std::size_t i) { return known[i].seconds - nothing_[i].seconds; });
  Simulated answer;
  answer.seconds = nothing + std::max(0.0, more);
  answer.bytes_per_rank = go_on([&](std::size_t i) { return known[i].bytes_per_rank; });
  answer.steps = static_cast<int>(
      std::lround(go_on([&](std::size_t i) { return static_cast<double>(known[i].steps); })));
  return answer;
}

std::size_t CollectiveTime::ops() const {
  std::size_t sum = 0;
  for (const Playable& each : played_) sum += each.simulation.ops();
  return sum;
}

}  // namespace tutti::cost
