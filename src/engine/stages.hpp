// engine/stages.hpp - one collective as several runs, one after the other: how their messages are told apart.
//
// A call by a switch goes in *rounds*, so that the switch keeps little; in each of them ranks and switch fold,
// then ranks tell each other that they have it, or do it again without the switch. The stage is in the upper
// half of a message's step: stages that come later are larger numbers, on every rank alike.
#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

#include "engine/launch.hpp"
#include "engine/segments.hpp"

namespace tutti::engine {

enum class Stage : std::uint8_t {
  fold,     // up to the switch and down again
  settle,   // everyone has its result: a barrier among the ranks
  instead,  // by the ranks alone, from this round to the end
  lost,     // no stage: an empty message that says so, of whoever has lost the switch
};

inline constexpr int kStageShift = 16;
// Of a round, in bytes of the input: one after the other costs a message's way up and down each time, some
// 0.3 ms where 8 MiB take 67 ms of a line of 1 Gbit/s.
inline constexpr std::size_t kRoundBytes = std::size_t{8} << 20;
// The longest call that has numbers for its rounds.
inline constexpr std::size_t kMostSwitchedBytes = kRoundBytes << 14;

// The first step of a stage of a round.
inline std::uint32_t steps_of(std::size_t round, Stage stage) {
  return (static_cast<std::uint32_t>(round) << 2 | static_cast<std::uint32_t>(stage))
         << kStageShift;
}
inline std::uint32_t stage_of(std::uint32_t step) { return step >> kStageShift << kStageShift; }
inline Stage kind_of_stage(std::uint32_t step) {
  return static_cast<Stage>(step >> kStageShift & 3);
}
inline std::size_t round_of(std::uint32_t step) { return step >> (kStageShift + 2); }

inline std::size_t rounds_in(std::size_t bytes) {
  return std::max<std::size_t>(1, (bytes + kRoundBytes - 1) / kRoundBytes);
}

// More than anybody who keeps to the protocol sends for stages that the other side has not come to.
inline constexpr std::size_t kMostEarlySegments = std::size_t{1} << 16;

// A segment of a stage that this side has not come to yet.
struct EarlySegment {
  int peer = 0;
  transport::Header header;
  Segment segment;
};

// Of a side of a call: how long it is, and its part from one byte to another.
std::size_t bytes_in(const std::vector<Piece>& side);
std::vector<Piece> part_of(const std::vector<Piece>& side, std::size_t begin, std::size_t end);

}  // namespace tutti::engine
