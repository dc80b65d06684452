#include "train/bucket_layout.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <numeric>
#include <tuple>

namespace tutti::train {
namespace {

// The last bucket gets at most this part of a bucket's size.
constexpr std::size_t kTailShare = 8;
// What is smaller than this part of it joins a bucket that is full already.
constexpr std::size_t kSmallShare = 32;

std::size_t round_up(std::size_t value, std::size_t multiple) {
  return (value + multiple - 1) / multiple * multiple;
}

// The order of readiness of all parameters that have gradients.
std::vector<std::size_t> complete(std::span<const Parameter> parameters,
                                  std::span<const std::size_t> seen) {
  std::vector<std::size_t> order;
  std::vector<bool> listed(parameters.size(), false);
  const auto append = [&](std::size_t index) {
    if (parameters[index].frozen || listed[index]) return;
    listed[index] = true;
    order.push_back(index);
  };
  for (std::size_t index : seen) append(index);
  for (std::size_t index = parameters.size(); index-- > 0;) append(index);
  return order;
}

// Cuts the order into buckets from its end, where the small one has to be.
class Cutter {
 public:
  Cutter(std::span<const Parameter> parameters, std::size_t bucket_bytes)
      : parameters_(parameters), bucket_bytes_(bucket_bytes) {}

  void take(std::size_t index) {
    const Parameter& parameter = parameters_[index];
    if (parameter.place.sum >= 0) return;  // append_sums does
    if (!parameter.aliases.empty()) return make(index);
    if (parameter.unit >= 0) return take_of_unit(index);
    Open& open = open_[parameter.value.dtype == Dtype::f32][parameter.place.counted];
    const std::size_t bytes = parameter.count() * sizeof(float);
    // The tail ends before it would grow too large, other buckets when they have reached their size.
    // What is small joins them even so: a bias is ready with the weight that comes after it (here:
    // before), and would hold up the bucket of the layer before.
    const bool reached = open.is_tail
                             ? open.bytes > 0 && open.bytes + bytes > bucket_bytes_ / kTailShare
                             : open.bytes >= bucket_bytes_;
    const bool full = reached && bytes > bucket_bytes_ / kSmallShare;
    if (open.bucket == kNone || full) {
      open = {buckets_.size(), 0, open.bucket == kNone};
      make(index);
    } else {
      buckets_[open.bucket].parameters.push_back(index);
    }
    open.bytes += bytes;
  }
  std::vector<BucketPlan> result() && {
    for (BucketPlan& bucket : buckets_)
      std::reverse(bucket.parameters.begin(), bucket.parameters.end());
    return std::move(buckets_);
  }

 private:
  static constexpr std::size_t kNone = static_cast<std::size_t>(-1);
  struct Open {
    std::size_t bucket = kNone;
    std::size_t bytes = 0;
    bool is_tail = true;
  };
  // Whatever its size.
  void take_of_unit(std::size_t index) {
    const Parameter& parameter = parameters_[index];
    const auto [at, is_new] = units_.try_emplace(
        {parameter.unit, parameter.value.dtype, parameter.place.counted}, buckets_.size());
    if (is_new) return make(index);
    buckets_[at->second].parameters.push_back(index);
  }
  void make(std::size_t index) {
    const Parameter& parameter = parameters_[index];
    buckets_.push_back(
        {parameter.value.dtype, {index}, 0, parameter.place.sum, parameter.place.counted});
  }

  std::span<const Parameter> parameters_;
  std::size_t bucket_bytes_;
  Open open_[2][2];  // by bf16 or f32, and by whether it counts
  std::map<std::tuple<int, Dtype, bool>, std::size_t> units_;
  std::vector<BucketPlan> buckets_;
};

// A bucket is as ready as the last of its members, and needed as early as the first.
void sort_by_readiness(std::vector<BucketPlan>& buckets, std::span<const std::size_t> order,
                       std::size_t parameters) {
  std::vector<std::size_t> position(parameters, 0);
  for (std::size_t i = 0; i < order.size(); ++i) position[order[i]] = i;
  const auto ready_at = [&](const BucketPlan& bucket) {
    std::size_t last = 0;
    for (std::size_t index : bucket.parameters) last = std::max(last, position[index]);
    return last;
  };
  std::stable_sort(buckets.begin(), buckets.end(), [&](const BucketPlan& a, const BucketPlan& b) {
    return ready_at(a) < ready_at(b);
  });
}

// One bucket for each sum, type and whether it counts, in an order that all ranks of a sum find alike.
void append_sums(std::span<const Parameter> parameters, std::vector<BucketPlan>& buckets) {
  std::vector<std::size_t> summed;
  for (std::size_t index = 0; index < parameters.size(); ++index)
    if (parameters[index].place.sum >= 0 && !parameters[index].frozen) summed.push_back(index);
  const auto key = [&](std::size_t index) {
    const Parameter& parameter = parameters[index];
    return std::tuple(parameter.place.sum, parameter.value.dtype, std::string_view(parameter.name));
  };
  std::sort(summed.begin(), summed.end(),
            [&](std::size_t a, std::size_t b) { return key(a) < key(b); });
  const std::size_t first = buckets.size();
  for (const std::size_t index : summed) {
    const Parameter& parameter = parameters[index];
    BucketPlan plan{parameter.value.dtype, {}, 0, parameter.place.sum, parameter.place.counted};
    const bool fits = buckets.size() > first && buckets.back().sum == plan.sum &&
                      buckets.back().dtype == plan.dtype;
    if (!fits) buckets.push_back(std::move(plan));
    buckets.back().parameters.push_back(index);
  }
}

void place_parameters(std::span<const Parameter> parameters, int ranks, BucketLayout& layout) {
  layout.place.assign(parameters.size(), std::nullopt);
  for (std::size_t b = 0; b < layout.buckets.size(); ++b) {
    BucketPlan& bucket = layout.buckets[b];
    std::size_t offset = 0;
    for (std::size_t index : bucket.parameters) {
      layout.place[index] = BucketPlace{b, offset};
      offset += round_up(parameters[index].count(), kBlock);
    }
    bucket.elements =
        round_up(std::max<std::size_t>(offset, 1), 128 * static_cast<std::size_t>(ranks));
  }
}

std::vector<std::size_t> forward_order(const BucketLayout& layout,
                                       std::span<const std::size_t> seen) {
  // Not seen: needed before anything else. Without any record: the reverse of backward.
  std::vector<std::size_t> first_use(layout.place.size(), 0);
  for (std::size_t i = 0; i < seen.size(); ++i) first_use[seen[i]] = i + 1;
  const auto needed_at = [&](std::size_t bucket) {
    std::size_t first = seen.size() + 1;
    for (std::size_t index : layout.buckets[bucket].parameters)
      first = std::min(first, first_use[index]);
    return first;
  };
  std::vector<std::size_t> buckets(layout.buckets.size());
  std::iota(buckets.rbegin(), buckets.rend(), 0);
  std::stable_sort(buckets.begin(), buckets.end(),
                   [&](std::size_t a, std::size_t b) { return needed_at(a) < needed_at(b); });
  return buckets;
}

double mebibytes(const BucketPlan& bucket) {
  return static_cast<double>(bucket.elements * sizeof(float)) / (1 << 20);
}

bool has_tied(std::span<const Parameter> parameters, const BucketPlan& bucket) {
  return std::any_of(bucket.parameters.begin(), bucket.parameters.end(),
                     [&](std::size_t index) { return !parameters[index].aliases.empty(); });
}

// The bucket that is ready last; a tied parameter's, when only what nobody used comes after it.
std::size_t tail_of(std::span<const Parameter> parameters, const BucketLayout& layout) {
  for (std::size_t b = layout.buckets.size(); b-- > 0;)
    if (has_tied(parameters, layout.buckets[b])) return b;
  return layout.buckets.size() - 1;
}

std::size_t largest_of(std::span<const Parameter> parameters, const BucketPlan& bucket) {
  return *std::max_element(
      bucket.parameters.begin(), bucket.parameters.end(),
      [&](std::size_t a, std::size_t b) { return parameters[a].count() < parameters[b].count(); });
}

}  // namespace

BucketLayout make_layout(std::span<const Parameter> parameters, const Order& order,
                         std::size_t bucket_bytes, int ranks) {
  const std::vector<std::size_t> ready = complete(parameters, order.backward);
  Cutter cutter(parameters, bucket_bytes);
  for (auto index = ready.rbegin(); index != ready.rend(); ++index) cutter.take(*index);
  BucketLayout layout;
  layout.buckets = std::move(cutter).result();
  sort_by_readiness(layout.buckets, ready, parameters.size());
  append_sums(parameters, layout.buckets);
  place_parameters(parameters, ranks, layout);
  layout.forward = forward_order(layout, order.forward);
  return layout;
}

std::size_t gradient_bytes(const BucketPlan& bucket, bool in_bf16) {
  const std::size_t sent = is_sent_in_bf16(bucket, in_bf16) ? size_of(Dtype::bf16) : 0;
  return bucket.elements * (sizeof(float) + sent);
}

std::size_t gradients_at_once(std::span<const Parameter> parameters, const BucketLayout& layout,
                              std::span<const std::size_t> came, std::size_t behind, bool in_bf16) {
  std::vector<std::size_t> last_time(parameters.size(), 0);  // at which it comes; 0: never
  for (std::size_t i = 0; i < came.size(); ++i) last_time[came[i]] = i + 1;
  std::vector<std::size_t> missing(layout.buckets.size(), 0);
  for (std::size_t b = 0; b < missing.size(); ++b)
    for (const std::size_t index : layout.buckets[b].parameters)
      missing[b] += parameters[index].count() > 0;
  std::vector<bool> is_open(missing.size(), false);
  std::size_t now = 0, most = 0, next = 0,
              gone = 0;  // buckets before `gone` have no memory any more
  const auto bytes = [&](std::size_t b) { return gradient_bytes(layout.buckets[b], in_bf16); };
  const auto open = [&](std::size_t b) {
    if (!is_open[b]) now += bytes(b);
    is_open[b] = true;
    most = std::max(most, now);
  };
  const auto go = [&] {
    while (next < missing.size() && missing[next] == 0) {
      open(next++);
      for (; next - gone > behind; ++gone) now -= bytes(gone);
    }
  };
  for (std::size_t i = 0; i < came.size(); ++i) {
    if (!layout.place[came[i]] || parameters[came[i]].count() == 0) continue;
    const std::size_t b = layout.place[came[i]]->bucket;
    open(b);
    if (last_time[came[i]] == i + 1) --missing[b];
    go();
  }
  std::fill(missing.begin(), missing.end(), 0);
  go();
  return most;
}

std::string tail_cause(std::span<const Parameter> parameters, const BucketLayout& layout) {
  if (layout.buckets.empty()) return "no gradients, no tail";
  const std::size_t tail = tail_of(parameters, layout);
  const BucketPlan& last = layout.buckets[tail];
  const Parameter& largest = parameters[largest_of(parameters, last)];
  const std::string where = fmt::format("tail: bucket {} ({:.2f} MiB), ", tail, mebibytes(last));
  if (!largest.aliases.empty())
    return where + fmt::format(
                       "because {} is tied to {}: its gradient is complete only when "
                       "backward ends",
                       largest.name, fmt::join(largest.aliases, ", "));
  return where + fmt::format("ready when backward ends; its largest part is {}", largest.name);
}

std::string describe(std::span<const Parameter> parameters, const BucketLayout& layout) {
  std::string text = fmt::format("{:>6}  {:>5}  {:>10}  {:>10}  {}\n", "bucket", "dtype", "tensors",
                                 "MiB", "from … to");
  for (std::size_t b = 0; b < layout.buckets.size(); ++b) {
    const BucketPlan& bucket = layout.buckets[b];
    text += fmt::format("{:>6}  {:>5}  {:>10}  {:>10.2f}  {} … {}\n", b, to_string(bucket.dtype),
                        bucket.parameters.size(), mebibytes(bucket),
                        parameters[bucket.parameters.front()].name,
                        parameters[bucket.parameters.back()].name);
  }
  return text + tail_cause(parameters, layout) + "\n";
}

}  // namespace tutti::train
