// apps/pretrain_gpt/position.hpp - where a run stands, as a checkpoint keeps it.
#pragma once

#include <cstdint>
#include <deque>
#include <string>
#include <vector>

#include "data.hpp"
#include "flags.hpp"
#include "tutti/train/checkpoint.hpp"
#include "tutti/train/loss_guard.hpp"
#include "tutti/train/loss_scale.hpp"

namespace pretrain {

struct Position {
  std::int64_t steps = 0;       // done
  std::int64_t updates = 0;     // those of them that were not skipped: what learning rates go by
  std::uint64_t sequences = 0;  // consumed by all ranks
};

tutti::train::CheckpointInfo to_checkpoint(const Position& position, const Flags& flags,
                                           const Schedule& schedule, const Data& data,
                                           const tutti::train::LossGuard& guard,
                                           const tutti::train::LossScale& scale);

// The last positions, for a run that goes back a step or two when a rank is lost.
class Whereabouts {
 public:
  struct Stand {
    Position position;
    std::string guard;  // LossGuard::state
    std::string scale;  // LossScale::state
  };
  void note(Stand stand);
  // Collective: where the run stood after that step, by the lowest rank that has been there.
  tutti::Result<Stand> share(tutti::Group& group, std::int64_t step) const;

 private:
  std::deque<Stand> stands_;  // oldest first
};

struct Resumed {
  Position position;
  Schedule schedule;
  std::vector<std::string> warnings;  // what an older checkpoint does not say
};
// Restores guard and scale, too. invalid_argument names a flag without which the position would mean
// something else. `updates`: as the weights count them, for checkpoints that do not.
tutti::Result<Resumed> from_checkpoint(const tutti::train::CheckpointInfo& info, const Flags& flags,
                                       const Data& data, std::int64_t updates,
                                       tutti::train::LossGuard& guard,
                                       tutti::train::LossScale& scale);

}  // namespace pretrain
