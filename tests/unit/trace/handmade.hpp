// Traces made by hand: a rank, its group, and what it did.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "trace/trace_file.hpp"
#include "tutti/types.hpp"

namespace tutti::trace {

class HandMade {
 public:
  HandMade(int rank, int ranks, std::string clock = "one") {
    trace_.rank = rank;
    trace_.ranks = ranks;
    trace_.job = "job";
    trace_.clock = std::move(clock);
    trace_.path = "rank-" + std::to_string(rank);
    GroupOfTrace group{"world", "", {}};
    for (int each = 0; each < ranks; ++each) group.ranks.push_back(each);
    group.members = "0-" + std::to_string(ranks - 1);
    trace_.groups[1] = group;
  }

  HandMade& collective(std::uint64_t sequence, std::int64_t joined, std::int64_t begin,
                       std::int64_t end, double predicted = 0, const std::string& name = "") {
    TraceEntry entry = of(Kind::collective, begin, end);
    entry.collective = static_cast<std::uint8_t>(Collective::all_reduce);
    entry.sequence = sequence;
    entry.origin = static_cast<std::uint64_t>(joined);
    entry.bytes = 1024;
    entry.value = predicted;
    entry.name = text(name);
    trace_.collectives.push_back(entry);
    return *this;
  }
  HandMade& wait(std::uint64_t sequence, std::int64_t begin, std::int64_t end,
                 std::uint64_t thread = 7) {
    TraceEntry entry = of(Kind::wait, begin, end);
    entry.sequence = sequence;
    entry.origin = thread;
    trace_.waits.push_back(entry);
    return *this;
  }
  HandMade& compute(const std::string& name, std::int64_t begin, std::int64_t end,
                    std::uint64_t thread = 7) {
    TraceEntry entry = of(Kind::compute, begin, end);
    entry.name = text(name);
    entry.origin = thread;
    trace_.compute.push_back(entry);
    return *this;
  }
  HandMade& bubble(const std::string& missing, std::int64_t begin, std::int64_t end,
                   std::uint64_t thread = 7) {
    TraceEntry entry = of(Kind::bubble, begin, end);
    entry.name = text(missing);
    entry.origin = thread;
    trace_.bubbles.push_back(entry);
    return *this;
  }
  HandMade& step(std::uint64_t number, std::int64_t begin, std::int64_t end) {
    TraceEntry entry = of(Kind::step, begin, end);
    entry.sequence = number;
    trace_.steps.push_back(entry);
    return *this;
  }
  RankTrace& trace() { return trace_; }
  operator RankTrace() const { return trace_; }  // NOLINT: what it is for

 private:
  static TraceEntry of(Kind kind, std::int64_t begin, std::int64_t end) {
    TraceEntry entry;
    entry.kind = static_cast<std::uint8_t>(kind);
    entry.channel = 1;
    entry.begin = begin;
    entry.end = end;
    return entry;
  }
  std::uint32_t text(const std::string& words) {
    if (words.empty()) return 0;
    for (const auto& [number, known] : trace_.texts)
      if (known == words) return number;
    const auto number = static_cast<std::uint32_t>(trace_.texts.size() + 1);
    trace_.texts[number] = words;
    return number;
  }

  RankTrace trace_;
};

}  // namespace tutti::trace
