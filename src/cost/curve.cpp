#include "cost/curve.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <map>

namespace tutti::cost {
namespace {

double median(std::vector<double>& values) {
  const auto middle = values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2);
  std::nth_element(values.begin(), middle, values.end());
  if (values.size() % 2 == 1) return *middle;
  return (*std::max_element(values.begin(), middle) + *middle) / 2;
}

// Neighbours that share one value, because the larger ones seemed cheaper.
struct Pool {
  double sum = 0;  // of the logarithms
  double weight = 0;
  std::size_t members = 0;

  double mean() const { return sum / weight; }
};

// Pool adjacent violators: the nearest rising sequence, in one pass.
std::vector<Pool> pool_violators(const std::vector<std::pair<double, double>>& points) {
  std::vector<Pool> pools;
  for (const auto& [logarithm, weight] : points) {
    pools.push_back({logarithm * weight, weight, 1});
    while (pools.size() > 1 && pools[pools.size() - 2].mean() > pools.back().mean()) {
      const Pool last = pools.back();
      pools.pop_back();
      pools.back().sum += last.sum;
      pools.back().weight += last.weight;
      pools.back().members += last.members;
    }
  }
  return pools;
}

}  // namespace

Curve Curve::fit(std::span<const Sample> samples) {
  std::map<double, std::vector<double>> by_size;
  for (const Sample& sample : samples)
    if (sample.bytes > 0 && sample.seconds > 0 && std::isfinite(sample.bytes) &&
        std::isfinite(sample.seconds))
      by_size[sample.bytes].push_back(sample.seconds);
  std::vector<std::pair<double, double>> points;
  for (auto& [bytes, seconds] : by_size)
    points.emplace_back(std::log(median(seconds)), static_cast<double>(seconds.size()));

  Curve curve;
  auto size = by_size.begin();
  for (const Pool& pool : pool_violators(points))
    for (std::size_t i = 0; i < pool.members; ++i, ++size)
      curve.knots_.push_back({size->first, std::exp(pool.mean())});
  return curve;
}

Result<Curve> Curve::from_knots(std::vector<Knot> knots) {
  const auto refuse = [](std::size_t index, const char* what) {
    return Status(Code::invalid_argument, fmt::format("point {} {}", index, what));
  };
  for (std::size_t i = 0; i < knots.size(); ++i) {
    if (!std::isfinite(knots[i].bytes) || knots[i].bytes <= 0)
      return refuse(i, "has a size that is not above zero");
    if (!std::isfinite(knots[i].seconds) || knots[i].seconds < 0)
      return refuse(i, "has a time below zero");
    if (i > 0 && knots[i].bytes <= knots[i - 1].bytes)
      return refuse(i, "is not larger than the one before it");
    if (i > 0 && knots[i].seconds < knots[i - 1].seconds)
      return refuse(i, "costs less than the one before it");
  }
  Curve curve;
  curve.knots_ = std::move(knots);
  return curve;
}

double Curve::seconds(double bytes) const {
  if (knots_.empty() || bytes <= 0) return 0;
  const Knot& last = knots_.back();
  if (bytes >= last.bytes) {
    const Knot before = knots_.size() > 1 ? knots_[knots_.size() - 2] : Knot{};
    const double rise = (last.seconds - before.seconds) / (last.bytes - before.bytes);
    return last.seconds + (bytes - last.bytes) * std::max(rise, last.seconds / last.bytes);
  }
  const auto right =
      std::upper_bound(knots_.begin(), knots_.end(), bytes,
                       [](double wanted, const Knot& knot) { return wanted < knot.bytes; });
  const Knot left = right == knots_.begin() ? Knot{} : *(right - 1);
  const double way = (bytes - left.bytes) / (right->bytes - left.bytes);
  return left.seconds + way * (right->seconds - left.seconds);
}

double Curve::share(double bytes, double whole) const {
  return whole > 0 ? seconds(whole) * (bytes / whole) : 0;
}

}  // namespace tutti::cost
