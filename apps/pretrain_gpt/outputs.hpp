// apps/pretrain_gpt/outputs.hpp - whether what a run writes can be written, asked before it begins.
#pragma once

#include "flags.hpp"
#include "tutti/status.hpp"

namespace pretrain {

// Makes the folders of --save, --trace and --tensorboard-dir. io names the flag and the path. To be
// asked on all ranks, before they meet: then all of them end alike.
tutti::Status check_outputs(const Flags& flags);

}  // namespace pretrain
