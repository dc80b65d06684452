#include "trace/lanes.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <unordered_set>

#include "tutti/types.hpp"

namespace tutti::trace {

std::string_view to_string(LaneKind kind) noexcept {
  switch (kind) {
    case LaneKind::step: return "step";
    case LaneKind::compute: return "compute";
    case LaneKind::wait: return "wait";
    case LaneKind::bubble: return "bubble";
    case LaneKind::communication: return "communication";
    case LaneKind::device: return "device";
    case LaneKind::reduce: return "reduce";
  }
  return "?";
}

// ---- stretches

Stretches union_of(Stretches stretches) {
  std::sort(stretches.begin(), stretches.end(),
            [](const Stretch& a, const Stretch& b) { return a.begin < b.begin; });
  Stretches apart;
  for (const Stretch& each : stretches) {
    if (each.end <= each.begin) continue;
    if (!apart.empty() && each.begin <= apart.back().end)
      apart.back().end = std::max(apart.back().end, each.end);
    else
      apart.push_back(each);
  }
  return apart;
}

Stretches common_of(const Stretches& a, const Stretches& b) {
  Stretches common;
  for (std::size_t i = 0, j = 0; i < a.size() && j < b.size();) {
    const Stretch both{std::max(a[i].begin, b[j].begin), std::min(a[i].end, b[j].end)};
    if (both.end > both.begin) common.push_back(both);
    if (a[i].end < b[j].end)
      ++i;
    else
      ++j;
  }
  return common;
}

Stretches without(const Stretches& a, const Stretches& b) {
  Stretches rest;
  std::size_t j = 0;
  for (Stretch each : a) {
    while (j < b.size() && b[j].end <= each.begin) ++j;
    for (std::size_t k = j; k < b.size() && b[k].begin < each.end; ++k) {
      if (b[k].begin > each.begin) rest.push_back({each.begin, b[k].begin});
      each.begin = std::max(each.begin, b[k].end);
    }
    if (each.end > each.begin) rest.push_back(each);
  }
  return rest;
}

std::int64_t length_of(const Stretches& stretches) {
  std::int64_t length = 0;
  for (const Stretch& each : stretches) length += each.end - each.begin;
  return length;
}

// ---- lanes

std::vector<std::vector<Slice>> part_by_nesting(std::vector<Slice> slices) {
  std::sort(slices.begin(), slices.end(), [](const Slice& a, const Slice& b) {
    return a.begin != b.begin ? a.begin < b.begin : a.end > b.end;
  });
  std::vector<std::vector<Slice>> parts;
  std::vector<std::vector<std::int64_t>> open;  // ends of the slices that contain the next one
  for (Slice& slice : slices) {
    std::size_t part = 0;
    for (; part < parts.size(); ++part) {
      std::vector<std::int64_t>& ends = open[part];
      while (!ends.empty() && ends.back() <= slice.begin) ends.pop_back();
      if (ends.empty() || slice.end <= ends.back()) break;
    }
    if (part == parts.size()) {
      parts.emplace_back();
      open.emplace_back();
    }
    open[part].push_back(slice.end);
    parts[part].push_back(std::move(slice));
  }
  return parts;
}

std::string name_of(const RankTrace& rank, const TraceEntry& collective) {
  const std::string_view word = to_string(static_cast<Collective>(collective.collective));
  const std::string& name = rank.text(collective.name);
  return name.empty() ? std::string(word) : fmt::format("{} {}", word, name);
}

namespace {

class Sorter {
 public:
  explicit Sorter(const RankTrace& rank) : rank_(rank) {}

  std::vector<Lane> lanes() {
    add_steps();
    add_threads();
    add_groups();
    return std::move(lanes_);
  }

 private:
  void add(LaneKind kind, const std::string& name, std::uint32_t channel,
           std::vector<Slice> slices) {
    auto parts = part_by_nesting(std::move(slices));
    for (std::size_t part = 0; part < parts.size(); ++part)
      lanes_.push_back({kind, part == 0 ? name : fmt::format("{} ({})", name, part + 1), channel,
                        std::move(parts[part])});
  }

  void add_steps() {
    std::vector<Slice> slices;
    for (const TraceEntry& step : rank_.steps)
      slices.push_back({step.begin, step.end, fmt::format("step {}", step.sequence), &step});
    add(LaneKind::step, "steps", 0, std::move(slices));
  }

  // What it waited for, where that was a collective.
  std::string name_of_wait(const TraceEntry& wait) const {
    const auto at = by_sequence_.find({wait.channel, wait.sequence});
    return at == by_sequence_.end() ? "wait" : "wait for " + name_of(rank_, *at->second);
  }

  void add_threads() {
    for (const TraceEntry& each : rank_.collectives)
      by_sequence_[{each.channel, each.sequence}] = &each;
    std::vector<std::uint64_t> threads;  // in order of appearance
    std::unordered_set<std::uint64_t> known;
    std::map<std::uint64_t, std::vector<const TraceEntry*>> compute, waits, bubbles;
    for (const TraceEntry& each : rank_.compute) compute[each.origin].push_back(&each);
    for (const TraceEntry& each : rank_.waits) waits[each.origin].push_back(&each);
    for (const TraceEntry& each : rank_.bubbles) bubbles[each.origin].push_back(&each);
    for (const auto* entries : {&rank_.compute, &rank_.waits, &rank_.bubbles})
      for (const TraceEntry& each : *entries)
        if (known.insert(each.origin).second) threads.push_back(each.origin);
    for (std::size_t i = 0; i < threads.size(); ++i) {
      const std::string suffix = i == 0 ? "" : fmt::format(" of thread {}", i + 1);
      const auto own_name = [&](const TraceEntry& each) { return rank_.text(each.name); };
      const auto wait_name = [&](const TraceEntry& each) { return name_of_wait(each); };
      const auto& empty = bubbles[threads[i]];
      add_cut(LaneKind::compute, suffix, compute[threads[i]], waits[threads[i]], own_name);
      add_cut(LaneKind::wait, suffix, waits[threads[i]], empty, wait_name);
      add_cut(LaneKind::bubble, suffix, empty, {}, own_name);
    }
  }

  // One thread's lane of a kind: its spans without what lies in `others`.
  template <class NameOf>
  void add_cut(LaneKind kind, const std::string& suffix,
               const std::vector<const TraceEntry*>& spans,
               const std::vector<const TraceEntry*>& others, NameOf name_of_span) {
    Stretches apart;
    for (const TraceEntry* other : others) apart.push_back({other->begin, other->end});
    apart = union_of(std::move(apart));
    std::vector<Slice> slices;
    for (const TraceEntry* span : spans)
      for (const Stretch& piece : without({{span->begin, span->end}}, around(apart, *span)))
        slices.push_back({piece.begin, piece.end, name_of_span(*span), span});
    add(kind, std::string(to_string(kind)) + suffix, 0, std::move(slices));
  }

  // The stretches that may touch a span: there are many, and spans are short.
  static Stretches around(const Stretches& sorted, const TraceEntry& span) {
    auto first = std::lower_bound(sorted.begin(), sorted.end(), span.begin,
                                  [](const Stretch& s, std::int64_t at) { return s.end < at; });
    Stretches near;
    for (; first != sorted.end() && first->begin < span.end; ++first) near.push_back(*first);
    return near;
  }

  void add_groups() {
    std::map<std::uint32_t, std::vector<Slice>> collectives, devices, folds;
    for (const TraceEntry& each : rank_.collectives)
      collectives[each.channel].push_back({each.begin, each.end, name_of(rank_, each), &each});
    for (const TraceEntry& each : rank_.device)
      devices[each.channel].push_back({each.begin, each.end, name_of(rank_, each), &each});
    for (const TraceEntry& each : rank_.folds)
      folds[each.channel].push_back({each.begin, each.end, "fold", &each});
    for (const auto& [channel, group] : rank_.groups) {
      if (!collectives[channel].empty())
        add(LaneKind::communication, group.name, channel, std::move(collectives[channel]));
      if (!devices[channel].empty())
        add(LaneKind::device, "device " + group.name, channel, std::move(devices[channel]));
      if (!folds[channel].empty())
        add(LaneKind::reduce, "reduce " + group.name, channel, std::move(folds[channel]));
    }
  }

  const RankTrace& rank_;
  std::map<std::pair<std::uint32_t, std::uint64_t>, const TraceEntry*> by_sequence_;
  std::vector<Lane> lanes_;
};

}  // namespace

std::vector<Lane> lanes_of(const RankTrace& rank) { return Sorter(rank).lanes(); }

}  // namespace tutti::trace
