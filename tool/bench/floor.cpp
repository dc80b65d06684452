#include "tool/bench/floor.hpp"

#include <sys/mman.h>

#include <algorithm>
#include <cstring>

#include "tool/bench/arithmetic.hpp"
#include "tool/bench/device_bench.hpp"

namespace tutti::tool {
namespace {

// Fresh, touched memory of its own.
class Arrays {
 public:
  Arrays(std::size_t arrays, std::size_t bytes)
      : stride_((bytes + 4095) / 4096 * 4096), bytes_(arrays * stride_) {
    memory_ = ::mmap(nullptr, bytes_, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (memory_ == MAP_FAILED) memory_ = nullptr;
    if (memory_ != nullptr) std::memset(memory_, 0, bytes_);
  }
  ~Arrays() {
    if (memory_ != nullptr) ::munmap(memory_, bytes_);
  }
  Arrays(const Arrays&) = delete;
  explicit operator bool() const { return memory_ != nullptr; }
  float* at(std::size_t index) const {
    return reinterpret_cast<float*>(static_cast<std::byte*>(memory_) + index * stride_);
  }

 private:
  std::size_t stride_;
  std::size_t bytes_;
  void* memory_ = nullptr;
};

}  // namespace

FloorWork floor_work(Collective collective, std::size_t bytes, bool in_place, int ranks) {
  const auto n = static_cast<std::size_t>(ranks);
  const std::size_t part = bytes / n;
  const std::size_t others = bytes - part;
  const CollectiveShape& shape = shape_of(collective);
  if (!shape.has_data()) return {};
  if (shape.is_prefix()) return {2, 1, others};
  if (shape.folds()) return {ranks, shape.all_get_the_same() ? ranks : 1, part};
  // What is only copied: a rank's own block stays where it is when the call is in place.
  const std::size_t copied = in_place || shape.has_one_buffer() ? others : bytes;
  return {1, 1, shape.rooted && shape.has_parts() ? copied / n : copied};
}

double least_bytes_sent(Collective collective, std::size_t bytes, int ranks) {
  return static_cast<double>(bytes) * (ranks > 1 ? bus_factor(collective, ranks) : 0);
}

std::optional<double> Floor::of(const BenchCell& cell) {
  if (tcp_) return tcp_us(cell);
  const FloorWork work = floor_work(cell.collective, cell.bytes, cell.in_place, meeting_.size());
  return std::max(flag_exchange_us(), memory_us(work));
}

std::optional<double> Floor::of(const BenchCell& cell, int ranks,
                                std::optional<double> ceiling_gbs) {
  const double moved = least_device_traffic(cell.collective, cell.bytes, cell.in_place, ranks);
  if (!ceiling_gbs || moved == 0) return std::nullopt;
  return moved / (*ceiling_gbs * 1e3);
}

double Floor::flag_exchange_us() {
  if (flags_us_) return *flags_us_;
  // Every cell's floor builds on it, so the quietest of three moments counts.
  for (int i = 0; i < 3; ++i) {
    const double median =
        bench::measure(meeting_, effort_, [&] { meeting_.exchange_flags(); }).median_us;
    flags_us_ = std::min(flags_us_.value_or(median), median);
  }
  return *flags_us_;
}

double Floor::memory_us(const FloorWork& work) {
  if (work.bytes < sizeof(float)) return 0;
  const auto key = std::make_tuple(work.sources, work.targets, work.bytes);
  if (const auto found = known_.find(key); found != known_.end()) return found->second;
  const auto sources = static_cast<std::size_t>(work.sources);
  const bool in_place = work.targets == work.sources && work.sources > 1;
  const Arrays arrays(sources + (in_place ? 0 : 1), work.bytes);
  if (meeting_.largest(arrays ? 0 : 1) > 0) return 0;
  std::vector<float*> pointers;
  for (std::size_t i = 0; i < sources; ++i) pointers.push_back(arrays.at(i));
  float* const result = in_place ? nullptr : arrays.at(sources);
  const std::size_t count = work.bytes / sizeof(float);
  const auto operation = [&] {
    if (work.sources == 1)
      std::memcpy(result, pointers[0], work.bytes);
    else if (in_place)
      fold_and_put(pointers.data(), work.sources, pointers.data(), work.sources, count);
    else
      fold_and_put(pointers.data(), work.sources, &result, 1, count);
  };
  // Ranks that share a core take turns, and a clock that starts with one's turn would not see the
  // others': there the time is until all are done.
  const auto until_all_are_done = [&] {
    operation();
    meeting_.exchange_flags();
  };
  const bench::Timing timing = meeting_.crowded()
                                   ? bench::measure(meeting_, effort_, until_all_are_done)
                                   : bench::measure(meeting_, effort_, operation);
  return known_[key] = timing.median_us;
}

std::optional<double> Floor::tcp_us(const BenchCell& cell) {
  if (meeting_.size() < 2) return std::nullopt;
  if (!link_) link_.emplace(measure_tcp(group_, meeting_));
  if (!link_->ok()) return std::nullopt;
  const double bytes = least_bytes_sent(cell.collective, cell.bytes, meeting_.size());
  return std::max((*link_)->one_way_us, bytes / (*link_)->bytes_per_us);
}

}  // namespace tutti::tool
