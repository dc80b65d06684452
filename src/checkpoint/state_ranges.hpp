// checkpoint/state_ranges.hpp - which rank of a data group stores which elements of the optimizer's state,
// and what a piece of it is called in a file.
//
// Everything is by parameter, state name and element range of the unpadded parameter, so that
// neither buckets nor the number of ranks matter. Pure: no files, no group.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "train/tensor_box.hpp"
#include "tutti/status.hpp"

namespace tutti::checkpoint {

// Kinds of state beside the optimizer's own: weights, the f32 ones behind bf16 ones, and module buffers.
inline constexpr std::string_view kWeightState = "weight";
inline constexpr std::string_view kMainState = "main";
inline constexpr std::string_view kBufferState = "buffer";

// Elements [first, first + count) of one kind of state of one parameter.
struct StateRange {
  std::size_t parameter = 0;
  std::string state;
  std::size_t first = 0;
  std::size_t count = 0;
  std::size_t end() const { return first + count; }
  bool operator==(const StateRange&) const = default;
};

// A piece's name in a state file: "TENSOR|STATE|FIRST:COUNT", elements of the whole tensor, or
// "TENSOR|STATE|[WHOLE][FIRST][EXTENT]|FIRST:COUNT", elements of a box of it.
struct PieceName {
  std::string tensor;
  std::string state;
  train::TensorBox box;  // empty: the whole
  std::size_t first = 0;
  std::size_t count = 0;
  bool operator==(const PieceName&) const = default;
};
std::string to_text(const PieceName& name);
std::optional<PieceName> parse_piece_name(std::string_view name);

// What ranks tell each other: a line for each range.
std::string to_text(std::span<const StateRange> ranges);
Result<std::vector<StateRange>> parse_ranges(std::string_view text);

// Given what every rank keeps, what each stores: every element once. Elements that several ranks
// keep (plain data parallelism) are shared out evenly among them. Code::internal names elements
// that nobody keeps though others of the same state are kept.
Result<std::vector<std::vector<StateRange>>> share_out(
    std::span<const std::vector<StateRange>> kept, std::span<const std::size_t> parameter_counts);

}  // namespace tutti::checkpoint
