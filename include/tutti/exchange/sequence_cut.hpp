// tutti/exchange/sequence_cut.hpp - which part of a whole a rank has: of rows, and of a sequence.
//
//   contiguous   rank r has part r of `ranks`
//   zigzag       rank r has chunks r and 2·ranks−1−r of 2·ranks: a causal mask leaves every rank
//                equally much to do
//
//     zigzag, 4 ranks    chunk   0  1  2  3  4  5  6  7
//                        rank    0  1  2  3  3  2  1  0
//
// Parts are cut as torch's chunk does: all of ceil(whole / parts), the later ones shorter or empty.
// Everything here is pure.
//
//   const auto runs = runs_of(SequenceCut::zigzag, 4096, cp, rank);
//   const auto tokens = take_runs<std::int64_t>(batch.tokens, 4096, runs);    // likewise labels, masks
//   const auto places = indices_of(runs);                                      // positions of these tokens
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string_view>
#include <vector>

#include "tutti/cpp20.hpp"

namespace tutti::exchange {
inline namespace [[gnu::visibility("default")]] v1 {

// Consecutive indices.
struct IndexRun {
  std::int64_t first = 0;
  std::int64_t count = 0;
  std::int64_t end() const { return first + count; }
  bool operator==(const IndexRun&) const = default;
};

// Part `index` of 0 … whole−1.
IndexRun part_of(std::int64_t whole, int parts, int index);
// Lengths of all parts.
std::vector<std::size_t> part_counts(std::int64_t whole, int parts);

enum class SequenceCut : std::uint8_t { contiguous, zigzag };
std::string_view to_string(SequenceCut cut) noexcept;

// The tokens of `rank`, in the order in which it holds them. Neighbours are one run; empty ones are left out.
std::vector<IndexRun> runs_of(SequenceCut cut, std::int64_t length, int ranks, int rank);
// Runs one after the other; those that meet become one.
std::vector<IndexRun> joined(std::span<const IndexRun> runs);

std::int64_t count_of(std::span<const IndexRun> runs);
std::vector<std::int64_t> indices_of(std::span<const IndexRun> runs);
// `length` consecutive indices from `from` on, counted within the runs: what a rank holds of another's part.
std::vector<IndexRun> slice_of(std::span<const IndexRun> runs, std::int64_t from,
                               std::int64_t length);

// Of each row of `length` values those in the runs.
template <class T>
std::vector<T> take_runs(std::span<const T> rows, std::int64_t length,
                         std::span<const IndexRun> runs) {
  std::vector<T> taken;
  taken.reserve(rows.size());
  for (std::size_t row = 0; length > 0 && row < rows.size();
       row += static_cast<std::size_t>(length))
    for (const IndexRun& run : runs) {
      const auto begin = rows.begin() + static_cast<std::ptrdiff_t>(row) + run.first;
      taken.insert(taken.end(), begin, begin + run.count);
    }
  return taken;
}

}  // namespace v1
}  // namespace tutti::exchange
