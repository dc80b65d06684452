#include "trace/exposure.hpp"

#include <algorithm>
#include <limits>
#include <map>
#include <tuple>

#include "trace/lanes.hpp"
#include "tutti/types.hpp"

namespace tutti::trace {

std::string_view to_string(Cause cause) noexcept {
  switch (cause) {
    case Cause::straggler: return "straggler";
    case Cause::queued_behind: return "queued behind";
    case Cause::slow_link: return "slow link";
    case Cause::late_ready: return "late ready";
  }
  return "?";
}

namespace {

// What is within half as long again of the prediction counts as expected.
constexpr double kTolerance = 1.5;

double& part(Causes& causes, Cause cause) { return causes[static_cast<std::size_t>(cause)]; }

double median_of(std::vector<double> values, double at = 0.5) {
  if (values.empty()) return 0;
  const auto nth = static_cast<std::ptrdiff_t>(at * static_cast<double>(values.size() - 1) + 0.5);
  std::nth_element(values.begin(), values.begin() + nth, values.end());
  return values[static_cast<std::size_t>(nth)];
}

// The part of a union that lies in an entry's time.
Stretches within(const Stretches& sorted, const TraceEntry& entry) {
  auto first = std::lower_bound(sorted.begin(), sorted.end(), entry.begin,
                                [](const Stretch& s, std::int64_t at) { return s.end < at; });
  Stretches near;
  for (; first != sorted.end() && first->begin < entry.end; ++first)
    near.push_back({std::max(first->begin, entry.begin), std::min(first->end, entry.end)});
  return union_of(std::move(near));
}

class Analyst {
 public:
  explicit Analyst(const TracedRun& run) : run_(run) {}

  Analysis analyse() {
    find_operations();
    make_rows();
    for (std::size_t i = 0; i < run_.ranks.size(); ++i) judge_rank(run_.ranks[i]);
    name_buckets();
    name_stragglers();
    std::sort(result_.steps.begin(), result_.steps.end(),
              [](const Step& a, const Step& b) { return a.number < b.number; });
    return std::move(result_);
  }

 private:
  using RowKey =
      std::tuple<std::string, std::uint8_t, std::uint8_t, std::uint8_t, std::uint64_t, std::size_t>;
  using Place = std::tuple<std::uint32_t, std::string, std::uint64_t>;

  static Place place_of(const RankTrace& rank, std::uint32_t channel, std::uint64_t sequence) {
    const auto group = rank.groups.find(channel);
    return {channel, group == rank.groups.end() ? std::string() : group->second.members, sequence};
  }

  void find_operations() {
    std::map<Place, TracedOperation> found;
    for (const RankTrace& rank : run_.ranks)
      for (const TraceEntry& entry : rank.collectives) join(found, rank, entry);
    for (auto& [place, operation] : found) result_.operations.push_back(std::move(operation));
    std::sort(result_.operations.begin(), result_.operations.end(),
              [](const TracedOperation& a, const TracedOperation& b) {
                return a.all_begun < b.all_begun;
              });
    for (std::size_t i = 0; i < result_.operations.size(); ++i) {
      const TracedOperation& each = result_.operations[i];
      index_[{each.channel, members_[{each.channel, each.members}], each.sequence}] = i;
    }
  }

  void join(std::map<Place, TracedOperation>& found, const RankTrace& rank,
            const TraceEntry& entry) {
    const GroupOfTrace& group = rank.groups.at(entry.channel);
    TracedOperation& operation = found[place_of(rank, entry.channel, entry.sequence)];
    const auto joined = static_cast<std::int64_t>(entry.origin);
    if (operation.seen++ == 0) {
      members_[{entry.channel, group.ranks}] = group.members;
      operation.group = group.name;
      operation.name = rank.text(entry.name);
      operation.members = group.ranks;
      operation.channel = entry.channel;
      operation.sequence = entry.sequence;
      operation.collective = entry.collective;
      operation.algorithm = entry.algorithm;
      operation.dtype = entry.dtype;
      operation.bytes = entry.bytes;
      operation.predicted_ns = entry.value;
      operation.first_join = joined;
      operation.last_join = std::numeric_limits<std::int64_t>::min();
      operation.all_begun = operation.last_end = std::numeric_limits<std::int64_t>::min();
    }
    operation.failed |= entry.code != 0;
    operation.first_join = std::min(operation.first_join, joined);
    if (joined > operation.last_join) {
      operation.last_join = joined;
      operation.last_rank = rank.rank;
    }
    operation.all_begun = std::max(operation.all_begun, entry.begin);
    operation.last_end = std::max(operation.last_end, entry.end);
  }

  static RowKey row_key(const TracedOperation& each) {
    return {each.group, each.collective, each.algorithm,
            each.dtype, each.bytes,      each.members.size()};
  }

  void make_rows() {
    std::map<RowKey, std::vector<const TracedOperation*>> alike;
    for (const TracedOperation& each : result_.operations)
      if (!each.failed) alike[row_key(each)].push_back(&each);
    for (const auto& [key, operations] : alike) {
      ExposureRow row;
      std::tie(row.group, row.collective, row.algorithm, row.dtype, row.bytes, std::ignore) = key;
      row.ranks = static_cast<int>(std::get<5>(key));
      row.count = operations.size();
      std::vector<double> times;
      for (const TracedOperation* each : operations) {
        times.push_back(std::max(each->measured_ns(), 0.0));
        row.total_ns += times.back();
        row.predicted_ns += each->predicted_ns / static_cast<double>(operations.size());
      }
      row.median_ns = median_of(times);
      row.p95_ns = median_of(times, 0.95);
      rows_[key] = result_.rows.size();
      result_.rows.push_back(std::move(row));
    }
  }

  // What it should have taken: as predicted, else as its like took.
  double expected_ns(const TracedOperation& operation) const {
    if (operation.predicted_ns > 0) return operation.predicted_ns;
    const auto row = rows_.find(row_key(operation));
    return row == rows_.end() ? 0 : result_.rows[row->second].median_ns;
  }

  void judge_rank(const RankTrace& rank) {
    RankTotals totals;
    totals.rank = rank.rank;
    totals.has_compute = !rank.compute.empty();
    Stretches blocked, computed, under_way, bubble;
    const std::size_t first_wait = result_.waits.size();
    for (const TraceEntry& wait : rank.waits) {
      blocked.push_back({wait.begin, wait.end});
      judge_wait(rank, wait);
    }
    for (const Lane& lane : lanes_of(rank)) {
      if (lane.kind != LaneKind::compute) continue;
      for (const Slice& slice : lane.slices) computed.push_back({slice.begin, slice.end});
    }
    for (const TraceEntry& each : rank.bubbles) bubble.push_back({each.begin, each.end});
    for (const TraceEntry& each : rank.collectives) under_way.push_back({each.begin, each.end});
    for (const TraceEntry& each : rank.folds)
      totals.fold_ns += static_cast<double>(each.end - each.begin);
    bubble = union_of(std::move(bubble));
    blocked = without(union_of(std::move(blocked)), bubble);
    computed = union_of(std::move(computed));
    under_way = union_of(std::move(under_way));
    totals.wait_ns = static_cast<double>(length_of(blocked));
    totals.bubble_ns = static_cast<double>(length_of(bubble));
    totals.compute_ns = static_cast<double>(length_of(computed));
    totals.communication_ns = static_cast<double>(length_of(under_way));
    totals.overlapped_ns = static_cast<double>(length_of(common_of(computed, under_way)));
    judge_steps(rank, {blocked, computed, under_way, bubble}, first_wait);
    result_.ranks.push_back(totals);
  }

  // Cuts the time that a thread was blocked at the moments that mattered to the operation.
  void judge_wait(const RankTrace& rank, const TraceEntry& entry) {
    const auto at = index_.find(place_of(rank, entry.channel, entry.sequence));
    if (at == index_.end()) return;
    const TracedOperation& operation = result_.operations[at->second];
    Wait wait;
    wait.rank = rank.rank;
    wait.operation = at->second;
    wait.begin = entry.begin;
    wait.end = entry.end;
    const auto up_to = [&](std::int64_t from, std::int64_t to) {
      return static_cast<double>(std::max<std::int64_t>(0, std::min(to, entry.end) - from));
    };
    std::int64_t from = entry.begin;
    if (operation.last_rank != rank.rank)
      part(wait.causes, Cause::straggler) = up_to(from, operation.last_join);
    from = std::clamp(operation.last_join, from, entry.end);
    part(wait.causes, Cause::queued_behind) = up_to(from, operation.all_begun);
    from = std::clamp(operation.all_begun, from, entry.end);
    const double rest = static_cast<double>(entry.end - from);
    const double took = static_cast<double>(entry.end - std::min(operation.all_begun, from));
    const double excess = std::max(0.0, took - kTolerance * expected_ns(operation));
    const double slow = expected_ns(operation) > 0 ? std::min(rest, excess) : 0;
    part(wait.causes, Cause::slow_link) = slow;
    part(wait.causes, Cause::late_ready) = rest - slow;
    // A rank that joined last and waited for itself has nobody to blame for the time before.
    const double known = wait.causes[0] + wait.causes[1] + wait.causes[2] + wait.causes[3];
    part(wait.causes, Cause::late_ready) +=
        std::max(0.0, static_cast<double>(entry.end - entry.begin) - known);
    if (const auto row = rows_.find(row_key(operation)); row != rows_.end())
      result_.rows[row->second].wait_ns += static_cast<double>(entry.end - entry.begin);
    result_.waits.push_back(wait);
  }

  Step& step_of(std::int64_t number) {
    for (auto step = result_.steps.rbegin(); step != result_.steps.rend(); ++step)
      if (step->number == number) return *step;
    result_.steps.push_back({number, -1, {}});
    return result_.steps.back();
  }

  // What a rank's time went to, each a union.
  struct Whereabouts {
    const Stretches &blocked, &computed, &under_way, &bubble;
  };

  void judge_steps(const RankTrace& rank, const Whereabouts& time, std::size_t first_wait) {
    std::vector<std::pair<std::int64_t, RankStep>> steps;
    steps.reserve(rank.steps.size());
    for (const TraceEntry& entry : rank.steps) {
      RankStep step;
      step.rank = rank.rank;
      step.begin = entry.begin;
      step.end = entry.end;
      const Stretches mine = within(time.computed, entry);
      const Stretches communication = within(time.under_way, entry);
      step.compute_ns = static_cast<double>(length_of(mine));
      step.communication_ns = static_cast<double>(length_of(communication));
      step.overlapped_ns = static_cast<double>(length_of(common_of(mine, communication)));
      step.wait_ns = static_cast<double>(length_of(within(time.blocked, entry)));
      step.bubble_ns = static_cast<double>(length_of(within(time.bubble, entry)));
      steps.emplace_back(static_cast<std::int64_t>(entry.sequence), step);
    }
    for (std::size_t i = first_wait; i < result_.waits.size(); ++i) {
      Wait& wait = result_.waits[i];
      const auto after = std::partition_point(steps.begin(), steps.end(), [&](const auto& step) {
        return step.second.begin <= wait.begin;
      });
      if (after == steps.begin()) continue;
      auto& [number, step] = *std::prev(after);
      if (wait.begin >= step.end) continue;
      wait.step = number;
      for (std::size_t c = 0; c < kCauses; ++c) step.causes[c] += wait.causes[c];
    }
    for (auto& [number, step] : steps) step_of(number).ranks.push_back(step);
  }

  // Per rank: how long others waited for it to come.
  using Blame = std::map<int, double>;
  static int most_blamed(const Blame& blame) {
    int rank = -1;
    double most = 0;
    for (const auto& [each, ns] : blame)
      if (ns > most) std::tie(rank, most) = std::tie(each, ns);
    return rank;
  }

  void name_stragglers() {
    std::map<std::int64_t, Blame> steps;
    for (const Wait& wait : result_.waits)
      steps[wait.step][result_.operations[wait.operation].last_rank] += wait.causes[0];
    for (Step& step : result_.steps) step.straggler = most_blamed(steps[step.number]);
  }

  void name_buckets() {
    std::map<std::string, Named> named;
    std::map<std::string, Blame> blame;
    const auto key = [](const TracedOperation& each) {
      const std::string word(to_string(static_cast<Collective>(each.collective)));
      return each.name.empty() ? word + " of group " + each.group : word + " " + each.name;
    };
    for (const TracedOperation& each : result_.operations) {
      Named& entry = named[key(each)];
      ++entry.count;
      entry.bytes = std::max(entry.bytes, each.bytes);
    }
    for (const Wait& wait : result_.waits) {
      const TracedOperation& operation = result_.operations[wait.operation];
      Named& entry = named[key(operation)];
      blame[key(operation)][operation.last_rank] += wait.causes[0];
      entry.wait_ns += static_cast<double>(wait.end - wait.begin);
      for (std::size_t c = 0; c < kCauses; ++c) entry.causes[c] += wait.causes[c];
    }
    for (auto& [name, entry] : named) {
      entry.name = name;
      entry.straggler = most_blamed(blame[name]);
      result_.named.push_back(std::move(entry));
    }
    std::stable_sort(
        result_.named.begin(), result_.named.end(),
        [](const Named& a, const Named& b) { return a.exposed_ns() > b.exposed_ns(); });
    std::stable_sort(
        result_.rows.begin(), result_.rows.end(),
        [](const ExposureRow& a, const ExposureRow& b) { return a.total_ns > b.total_ns; });
  }

  const TracedRun& run_;
  Analysis result_;
  std::map<Place, std::size_t> index_;
  std::map<std::pair<std::uint32_t, std::vector<int>>, std::string> members_;
  std::map<RowKey, std::size_t> rows_;
};

}  // namespace

Analysis analyse(const TracedRun& run) { return Analyst(run).analyse(); }

}  // namespace tutti::trace
