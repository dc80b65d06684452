// checkpoint/state_ranges.hpp - which rank stores which elements of the optimizer's state, and
// where a rank finds those that it needs again.
//
// Everything is by parameter, state name and element range of the unpadded parameter, so that
// neither buckets nor the number of ranks matter. Pure: no files, no group.
//
//   saved on 3 ranks    |  rank 0  |  rank 1  |  rank 2  |
//   wanted on 2         |    rank 0     |    rank 1      |      each takes the overlaps
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "tutti/status.hpp"

namespace tutti::checkpoint {

// Elements [first, first + count) of one kind of state of one parameter.
struct StateRange {
  std::size_t parameter = 0;
  std::string state;
  std::size_t first = 0;
  std::size_t count = 0;
  std::size_t end() const { return first + count; }
  bool operator==(const StateRange&) const = default;
};

// "PARAMETER|STATE|FIRST:COUNT": a piece's name in a state file.
std::string piece_name(std::string_view parameter, std::string_view state, std::size_t first,
                       std::size_t count);
struct PieceName {
  std::string parameter;
  std::string state;
  std::size_t first = 0;
  std::size_t count = 0;
};
std::optional<PieceName> parse_piece_name(std::string_view name);

// What ranks tell each other: a line for each range.
std::string to_text(std::span<const StateRange> ranges);
Result<std::vector<StateRange>> parse_ranges(std::string_view text);

// Given what every rank keeps, what each stores: every element once. Elements that several ranks
// keep (plain data parallelism) are shared out evenly among them. Code::internal names elements
// that nobody keeps though others of the same state are kept.
Result<std::vector<std::vector<StateRange>>> share_out(
    std::span<const std::vector<StateRange>> kept, std::span<const std::size_t> parameter_counts);

// Where a stored piece lies.
struct Stored {
  std::size_t first = 0;
  std::size_t count = 0;
  std::size_t file = 0;
  std::size_t tensor = 0;  // index in that file's header
};
// All stored pieces of one state of one parameter.
class StoredState {
 public:
  void add(const Stored& piece) { pieces_.push_back(piece); }
  // Sorts. False when two pieces overlap.
  bool finish();
  // Those with elements of [first, first + count), in order.
  std::vector<Stored> overlapping(std::size_t first, std::size_t count) const;
  bool covers(std::size_t first, std::size_t count) const;

 private:
  std::vector<Stored> pieces_;
};

}  // namespace tutti::checkpoint
