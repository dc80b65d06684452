#include "train/pass_plan.hpp"

#include <algorithm>

namespace tutti::train {
namespace {

std::size_t bytes_of(const BucketPlan& bucket) { return bucket.elements * size_of(bucket.dtype); }

// Follows how many of each bucket's parameters are in use.
class UseCounter {
 public:
  explicit UseCounter(const BucketLayout& layout)
      : layout_(layout), users_(layout.buckets.size(), 0) {}
  // True when its bucket was not in use before.
  bool take(const WeightUse& use) {
    int& users = users_[layout_.place[use.parameter]->bucket];
    if (use.begins) return users++ == 0;
    if (users > 0) --users;
    return false;
  }
  bool is_used(std::size_t bucket) const { return users_[bucket] > 0; }

 private:
  const BucketLayout& layout_;
  std::vector<int> users_;
};

struct PassGathers {
  std::vector<std::size_t> used, unused;
};

// By parameter, in either pass.
std::vector<bool> used_parameters(const BucketLayout& layout, std::span<const WeightUse> uses) {
  std::vector<bool> used(layout.place.size(), false);
  for (const WeightUse& use : uses) used[use.parameter] = true;
  return used;
}

// A parameter that was not used at all may yet be, in a bucket that others have used: one more for each of
// them, next to each other, so that all but the first are kept.
PassGathers gathers_of(const BucketLayout& layout, std::span<const WeightUse> uses,
                       bool in_backward) {
  UseCounter counter(layout);
  PassGathers gathers;
  std::vector<bool> seen(layout.buckets.size(), false);
  for (const WeightUse& use : uses) {
    if (use.in_backward != in_backward || !layout.place[use.parameter]) continue;
    const std::size_t bucket = layout.place[use.parameter]->bucket;
    if (counter.take(use)) gathers.used.push_back(bucket);
    seen[bucket] = true;
  }
  const std::vector<bool> used = used_parameters(layout, uses);
  for (std::size_t bucket = 0; bucket < seen.size(); ++bucket) {
    const auto& members = layout.buckets[bucket].parameters;
    const auto unused = static_cast<std::size_t>(std::count_if(
        members.begin(), members.end(), [&](std::size_t index) { return !used[index]; }));
    gathers.unused.insert(gathers.unused.end(), std::max<std::size_t>(unused, !seen[bucket]),
                          bucket);
  }
  return gathers;
}

// Those in use, and those under way beside them.
std::size_t bytes_at_once(const BucketLayout& layout, std::span<const WeightUse> uses,
                          const PassPlan& plan) {
  std::size_t most = 0;
  for (const bool in_backward : {false, true}) {
    UseCounter counter(layout);
    std::size_t next = in_backward ? plan.used_backward : 0;
    for (const WeightUse& use : uses) {
      if (use.in_backward != in_backward || !layout.place[use.parameter]) continue;
      if (!counter.take(use)) continue;
      ++next;
      std::vector<bool> whole(layout.buckets.size(), false);
      for (std::size_t b = 0; b < whole.size(); ++b) whole[b] = counter.is_used(b);
      for (std::size_t i = next; i < std::min(next + plan.depth, plan.buckets.size()); ++i)
        whole[plan.buckets[i]] = true;
      std::size_t bytes = 0;
      for (std::size_t b = 0; b < whole.size(); ++b)
        if (whole[b]) bytes += bytes_of(layout.buckets[b]);
      most = std::max(most, bytes);
    }
  }
  return most;
}

}  // namespace

PassPlan make_pass_plan(const BucketLayout& layout, std::span<const WeightUse> uses,
                        std::size_t depth) {
  PassPlan plan;
  plan.depth = depth;
  const PassGathers forward = gathers_of(layout, uses, false);
  const PassGathers backward = gathers_of(layout, uses, true);
  for (const auto* part : {&forward.used, &forward.unused, &backward.unused, &backward.used})
    plan.buckets.insert(plan.buckets.end(), part->begin(), part->end());
  plan.backward = forward.used.size() + forward.unused.size();
  plan.used_backward = plan.backward + backward.unused.size();
  plan.is_kept.assign(plan.buckets.size(), false);
  for (std::size_t i = 0; i < plan.buckets.size(); ++i)
    for (std::size_t before = i - std::min(i, depth); before < i; ++before)
      if (plan.buckets[before] == plan.buckets[i]) plan.is_kept[i] = true;
  plan.bytes_at_once = bytes_at_once(layout, uses, plan);
  return plan;
}

double exposed_s(std::span<const PacedGather> gathers, std::size_t depth) {
  double now = 0, wire_free = 0, exposed = 0;
  std::vector<double> begins(gathers.size(), 0.0);  // of uses
  for (std::size_t i = 0; i < gathers.size(); ++i) {
    const double launched = i < depth ? 0 : begins[i - depth];
    wire_free = std::max(launched, wire_free) + gathers[i].gather_s;
    begins[i] = std::max(now, wire_free);
    exposed += begins[i] - now;
    now = begins[i] + gathers[i].compute_s;
  }
  return exposed;
}

std::size_t choose_depth(std::span<const PacedGather> gathers, std::size_t most) {
  double total = 0;
  for (const PacedGather& one : gathers) total += one.compute_s + one.gather_s;
  const double best = exposed_s(gathers, most);
  for (std::size_t depth = 1; depth < most; ++depth)
    if (exposed_s(gathers, depth) <= best + 0.01 * total) return depth;
  return most;
}

}  // namespace tutti::train
