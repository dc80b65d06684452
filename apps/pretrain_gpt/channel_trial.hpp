// apps/pretrain_gpt/channel_trial.hpp - what a step's collectives take alone, and what they and
// matrix products take from each other: on a CPU they share cores.
//
// Ordering       collective.
#pragma once

#include "prediction.hpp"

namespace pretrain {

// Fills alone_s of every collective of `rehearsal`, and its shape's pace.
tutti::Status try_channel(tutti::Group& group, Rehearsal& rehearsal);

}  // namespace pretrain
