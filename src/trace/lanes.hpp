// trace/lanes.hpp - one rank's trace as lanes of slices, as a viewer draws them.
//
// A lane is a row. On a row slices lie beside or within each other, never across: whatever would
// overlap gets a row of its own. Compute is what its thread did while it was not blocked: spans are
// cut where a wait lies, and waits where a bubble does.
#pragma once

#include <string>
#include <vector>

#include "trace/trace_file.hpp"

namespace tutti::trace {

enum class LaneKind { step, compute, wait, bubble, communication, device, reduce };
std::string_view to_string(LaneKind kind) noexcept;

struct Slice {
  std::int64_t begin = 0;
  std::int64_t end = 0;
  std::string name;
  const TraceEntry* entry = nullptr;  // in the RankTrace
};

struct Lane {
  LaneKind kind = LaneKind::compute;
  std::string name;           // "compute", "world", "reduce world (2)"
  std::uint32_t channel = 0;  // of communication, device and reduce
  std::vector<Slice> slices;  // by begin; the longer first
};

// In the order in which they are to be drawn. Empty lanes are left out.
std::vector<Lane> lanes_of(const RankTrace& rank);

// Parts `slices` so that each part keeps the rule; a part is sorted.
std::vector<std::vector<Slice>> part_by_nesting(std::vector<Slice> slices);

// "all_reduce", or "all_reduce bucket 3" of a call with a name.
std::string name_of(const RankTrace& rank, const TraceEntry& collective);

// Half-open stretches of time.
struct Stretch {
  std::int64_t begin = 0;
  std::int64_t end = 0;
};
using Stretches = std::vector<Stretch>;
Stretches union_of(Stretches stretches);                      // sorted, apart
Stretches common_of(const Stretches& a, const Stretches& b);  // of two unions
Stretches without(const Stretches& a, const Stretches& b);    // a − b, of two unions
std::int64_t length_of(const Stretches& stretches);           // of a union

}  // namespace tutti::trace
