// trace/trace_file.hpp - reads what a Tracer wrote.
//
// A file that ends early (its rank was killed, or is still running) is read as far as it goes:
// parts that were never written are zero. Anything else that is not as docs/formats/trace.md says
// is an error that names the file and the place.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <unordered_map>
#include <vector>

#include "trace/entry.hpp"
#include "tutti/status.hpp"

namespace tutti::trace {

struct GroupOfTrace {
  std::string name;
  std::string members;     // text_of_ranks
  std::vector<int> ranks;  // world ranks, by group rank
};

// One rank's trace. Entries are in the order in which they were noted.
struct RankTrace {
  std::string path;
  int rank = 0;
  int ranks = 1;
  int pid = 0;
  std::string job, host, clock;
  std::int64_t unix_time_ns = 0;
  std::int64_t time_ns = 0;
  bool cut_off = false;  // it did not end in good order

  std::vector<TraceEntry> collectives, waits, folds, compute, steps, counters, device, bubbles;
  std::unordered_map<std::uint32_t, std::string> texts;
  std::map<std::uint32_t, GroupOfTrace> groups;  // by channel
  std::optional<std::int64_t> clock_offset;      // to rank 0's, where the job has measured it

  const std::string& text(std::uint32_t number) const;
};

// invalid_argument: it is no trace; corrupt: it was one; io: it cannot be read.
Result<RankTrace> read_trace(const std::string& path);
// The same from bytes; `path` is for messages.
Result<RankTrace> parse_trace(const std::string& path, const std::string& bytes);

// The largest job of which anything is read: a few bytes must not become a list of billions.
inline constexpr int kMostRanks = 1 << 20;

// "0-3,8" → 0 1 2 3 8; nothing when it is no such list, or names more ranks than a job of `ranks` has.
std::optional<std::vector<int>> ranks_of_text(const std::string& text, int ranks = kMostRanks);

}  // namespace tutti::trace
