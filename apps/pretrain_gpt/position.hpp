// apps/pretrain_gpt/position.hpp - where a run stands, as a checkpoint keeps it.
#pragma once

#include <cstdint>

#include "flags.hpp"
#include "tutti/train/checkpoint.hpp"

namespace pretrain {

struct Position {
  std::int64_t steps = 0;       // done
  std::uint64_t sequences = 0;  // consumed by all ranks
};

// `data_bytes`: of all files.
tutti::train::CheckpointInfo to_checkpoint(const Position& position, const Flags& flags,
                                           std::size_t data_bytes);
// invalid_argument names a flag without which the position would mean something else.
tutti::Result<Position> from_checkpoint(const tutti::train::CheckpointInfo& info,
                                        const Flags& flags, std::size_t data_bytes);

}  // namespace pretrain
