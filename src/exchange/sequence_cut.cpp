#include "tutti/exchange/sequence_cut.hpp"

#include <algorithm>

namespace tutti::exchange {

inline namespace v1 {

IndexRun part_of(std::int64_t whole, int parts, int index) {
  const std::int64_t length = (whole + parts - 1) / parts;
  const std::int64_t first = std::min(whole, length * index);
  return {first, std::min(whole, first + length) - first};
}

std::vector<std::size_t> part_counts(std::int64_t whole, int parts) {
  std::vector<std::size_t> counts;
  for (int index = 0; index < parts; ++index)
    counts.push_back(static_cast<std::size_t>(part_of(whole, parts, index).count));
  return counts;
}

std::string_view to_string(SequenceCut cut) noexcept {
  switch (cut) {
    case SequenceCut::contiguous: return "contiguous";
    case SequenceCut::zigzag: return "zigzag";
  }
  return "?";
}

std::vector<IndexRun> joined(std::span<const IndexRun> runs) {
  std::vector<IndexRun> result;
  for (const IndexRun& run : runs) {
    if (run.count == 0) continue;
    if (!result.empty() && result.back().end() == run.first)
      result.back().count += run.count;
    else
      result.push_back(run);
  }
  return result;
}

std::vector<IndexRun> runs_of(SequenceCut cut, std::int64_t length, int ranks, int rank) {
  std::vector<IndexRun> runs;
  switch (cut) {
    case SequenceCut::contiguous: runs = {part_of(length, ranks, rank)}; break;
    case SequenceCut::zigzag:
      runs = {part_of(length, 2 * ranks, rank), part_of(length, 2 * ranks, 2 * ranks - 1 - rank)};
      break;
  }
  return joined(runs);
}

std::int64_t count_of(std::span<const IndexRun> runs) {
  std::int64_t count = 0;
  for (const IndexRun& run : runs) count += run.count;
  return count;
}

std::vector<std::int64_t> indices_of(std::span<const IndexRun> runs) {
  std::vector<std::int64_t> indices;
  for (const IndexRun& run : runs)
    for (std::int64_t index = run.first; index < run.end(); ++index) indices.push_back(index);
  return indices;
}

std::vector<IndexRun> slice_of(std::span<const IndexRun> runs, std::int64_t from,
                               std::int64_t length) {
  std::vector<IndexRun> result;
  for (const IndexRun& run : runs) {
    const std::int64_t skipped = std::clamp<std::int64_t>(from, 0, run.count);
    const std::int64_t taken = std::min(run.count - skipped, length);
    if (taken > 0) result.push_back({run.first + skipped, taken});
    from -= skipped;
    length -= taken;
  }
  return result;
}

}  // namespace v1
}  // namespace tutti::exchange
