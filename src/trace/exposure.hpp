// trace/exposure.hpp - where the time went: who waited, for what, and why it was not hidden.
//
// An operation is one collective, seen by all its ranks: a rank joins it (puts it into its queue),
// begins it (the ones before it are done), and ends it. Every moment that a thread was blocked on
// an operation has one cause:
//
//   straggler      somebody had not joined yet; the last one to come is named
//   queued behind  all had joined, but some rank was still in an earlier collective of the group
//   slow link      it was under way for longer than half as long again as predicted: the excess
//   late ready     the rest: it went as it should, but was joined too late to be hidden
//
//     joined by the first … by the last │ begun by the last │ expected time │ … ended here
//     └────────── straggler ───────────┘└── queued behind ─┘└─ late ready ─┘└─ slow link ─┘
//
// The bubble of a pipeline, in which a neighbour had not computed what this rank needed, is no wait.
// Exposed is all but the straggler's share, as tutti/train/overlap.hpp has it. Overlap is HTA's:
// the share of the time with communication under way in which this rank computed.
#pragma once

#include <array>
#include <string>
#include <vector>

#include "trace/run.hpp"

namespace tutti::trace {

enum class Cause { straggler, queued_behind, slow_link, late_ready };
inline constexpr std::size_t kCauses = 4;
std::string_view to_string(Cause cause) noexcept;  // "late ready"

using Causes = std::array<double, kCauses>;  // ns

struct TracedOperation {
  std::string group;
  std::string name;  // of the call: "bucket 3"; may be empty
  std::vector<int> members;
  std::uint32_t channel = 0;
  std::uint64_t sequence = 0;
  std::uint8_t collective = 0, algorithm = 0, dtype = 0;
  std::uint64_t bytes = 0;
  double predicted_ns = 0;  // 0: nobody knows
  std::size_t seen = 0;     // by how many ranks
  bool failed = false;
  std::int64_t first_join = 0, last_join = 0;
  int last_rank = -1;  // who joined last
  std::int64_t all_begun = 0;
  std::int64_t last_end = 0;
  double measured_ns() const { return static_cast<double>(last_end - all_begun); }
};

// One rank's blocked time on one operation.
struct Wait {
  int rank = 0;
  std::int64_t step = -1;     // -1: outside of steps
  std::size_t operation = 0;  // in Analysis::operations
  std::int64_t begin = 0, end = 0;
  Causes causes{};
};

struct RankStep {
  int rank = 0;
  std::int64_t begin = 0, end = 0;
  double compute_ns = 0, communication_ns = 0, overlapped_ns = 0;
  double wait_ns = 0;
  double bubble_ns = 0;  // no part of wait_ns
  Causes causes{};
  double exposed_ns() const { return wait_ns - causes[0]; }
};

struct Step {
  std::int64_t number = 0;
  int straggler = -1;  // whom the others waited for most; -1: nobody
  std::vector<RankStep> ranks;
};

struct RankTotals {
  int rank = 0;
  double compute_ns = 0, communication_ns = 0, overlapped_ns = 0, wait_ns = 0, fold_ns = 0;
  double bubble_ns = 0;  // no part of wait_ns
  bool has_compute = false;
  // HTA: |compute ∩ communication| / |∪ communication|; -1 where nothing says what was computed.
  double overlap() const {
    return has_compute && communication_ns > 0 ? overlapped_ns / communication_ns : -1;
  }
};

// Equal calls of a group, put together.
struct ExposureRow {
  std::string group;
  std::uint8_t collective = 0, algorithm = 0, dtype = 0;
  std::uint64_t bytes = 0;
  int ranks = 0;
  std::size_t count = 0;
  double predicted_ns = 0;
  double median_ns = 0, p95_ns = 0, total_ns = 0;
  double wait_ns = 0;  // of all ranks
};

// A bucket, or whatever else calls were named.
struct Named {
  std::string name;
  std::size_t count = 0;
  std::uint64_t bytes = 0;
  double wait_ns = 0;  // of all ranks
  Causes causes{};
  int straggler = -1;  // as in Step
  double exposed_ns() const { return wait_ns - causes[0]; }
};

struct Analysis {
  std::vector<TracedOperation> operations;  // by when they were begun
  std::vector<Wait> waits;
  std::vector<Step> steps;
  std::vector<RankTotals> ranks;
  std::vector<ExposureRow> rows;  // the most time first
  std::vector<Named> named;       // the most exposed first
};

Analysis analyse(const TracedRun& run);

}  // namespace tutti::trace
