// Clocks of several hosts on one line: no collective ends anywhere before everybody has begun it.
//
//   rank i (its clock c_i) ended an operation that rank j began:  end_i + c_i ≥ begin_j + c_j
//
// Each operation thus bounds c_i − c_j from both sides; of thousands the tightest count.
#include <algorithm>
#include <limits>
#include <map>

#include "trace/run.hpp"

namespace tutti::trace {
namespace {

constexpr std::int64_t kNone = std::numeric_limits<std::int64_t>::min() / 4;
// Wall clocks that are kept in step by NTP are about this good: tighter bounds are believed
// instead.
constexpr std::int64_t kWallClock = 2'000'000;

// When one clock's ranks had all begun an operation, and when the first of them ended it.
struct Seen {
  std::int64_t last_begin = kNone;
  std::int64_t first_end = -kNone;
};

struct OperationKey {
  std::uint32_t channel = 0;
  std::string members;
  std::uint64_t sequence = 0;
  auto operator<=>(const OperationKey&) const = default;
};

// Ranks by clock: the number of each rank's clock, in order of first appearance.
std::vector<std::size_t> clocks_of(std::span<const RankTrace> ranks) {
  std::vector<std::size_t> clock_of;
  std::map<std::string, std::size_t> known;
  std::size_t count = 0;
  for (const RankTrace& rank : ranks) {
    if (rank.clock.empty()) {  // nobody knows: a clock of its own
      clock_of.push_back(count++);
      continue;
    }
    const auto [at, is_new] = known.emplace(rank.clock, count);
    if (is_new) ++count;
    clock_of.push_back(at->second);
  }
  return clock_of;
}

class Aligner {
 public:
  explicit Aligner(std::span<const RankTrace> ranks) : ranks_(ranks), clock_of_(clocks_of(ranks)) {
    clocks_ = ranks.empty() ? 0 : 1 + *std::max_element(clock_of_.begin(), clock_of_.end());
    found_.resize(clocks_);
    set_.resize(clocks_, false);
  }

  std::vector<Alignment> align() {
    if (clocks_ > 1) {
      look_at_collectives();
      set_[0] = true;
      while (settle_one()) {
      }
    }
    std::vector<Alignment> all;
    for (const std::size_t clock : clock_of_) all.push_back(found_[clock]);
    return all;
  }

 private:
  void look_at_collectives() {
    for (std::size_t i = 0; i < ranks_.size(); ++i)
      for (const TraceEntry& entry : ranks_[i].collectives) {
        if (entry.code != 0) continue;
        const auto group = ranks_[i].groups.find(entry.channel);
        if (group == ranks_[i].groups.end()) continue;
        auto& seen = operations_[{entry.channel, group->second.members, entry.sequence}];
        seen.resize(clocks_);
        Seen& mine = seen[clock_of_[i]];
        mine.last_begin = std::max(mine.last_begin, entry.begin);
        mine.first_end = std::min(mine.first_end, entry.end);
      }
  }

  // The bounds of clock `c` against all that are settled.
  std::pair<std::int64_t, std::int64_t> bounds(std::size_t c) const {
    std::int64_t least = kNone;
    std::int64_t most = -kNone;
    for (const auto& [key, seen] : operations_) {
      if (seen[c].last_begin == kNone) continue;
      for (std::size_t other = 0; other < clocks_; ++other) {
        if (!set_[other] || seen[other].last_begin == kNone) continue;
        const std::int64_t offset = found_[other].offset_ns;
        least = std::max(least, seen[other].last_begin + offset - seen[c].first_end);
        most = std::min(most, seen[other].first_end + offset - seen[c].last_begin);
      }
    }
    return {least, most};
  }

  // Settles the clock with the tightest bounds; one without any goes by the wall.
  bool settle_one() {
    std::size_t best = clocks_;
    std::pair<std::int64_t, std::int64_t> tightest;
    for (std::size_t c = 0; c < clocks_; ++c) {
      if (set_[c]) continue;
      const auto found = bounds(c);
      if (best == clocks_ || found.second - found.first < tightest.second - tightest.first) {
        best = c;
        tightest = found;
      }
    }
    if (best == clocks_) return false;
    found_[best] = judge(best, tightest.first, tightest.second);
    set_[best] = true;
    return true;
  }

  Alignment judge(std::size_t clock, std::int64_t least, std::int64_t most) const {
    const RankTrace& first = ranks_.front();
    const RankTrace& rank = ranks_[static_cast<std::size_t>(
        std::find(clock_of_.begin(), clock_of_.end(), clock) - clock_of_.begin())];
    const bool measured = rank.clock_offset.has_value() && first.clock_offset.has_value();
    const std::int64_t guess =
        measured ? *rank.clock_offset - *first.clock_offset
                 : (rank.unix_time_ns - rank.time_ns) - (first.unix_time_ns - first.time_ns);
    if (least == kNone || most == -kNone) return {guess, -1};
    // Clocks that drift apart may contradict themselves over a long run: then the middle is best.
    const std::int64_t middle = least + (most - least) / 2;
    const std::int64_t width = most > least ? most - least : least - most;
    const bool believe = most >= least && (measured || width > kWallClock);
    return {believe ? std::clamp(guess, least, most) : middle, width / 2};
  }

  std::span<const RankTrace> ranks_;
  std::vector<std::size_t> clock_of_;
  std::size_t clocks_ = 0;
  std::vector<Alignment> found_;
  std::vector<bool> set_;
  std::map<OperationKey, std::vector<Seen>> operations_;
};

}  // namespace

std::vector<Alignment> align_clocks(std::span<const RankTrace> ranks) {
  return Aligner(ranks).align();
}

}  // namespace tutti::trace
