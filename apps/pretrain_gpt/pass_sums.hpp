// apps/pretrain_gpt/pass_sums.hpp - what came of a step's forwards and backwards on one rank: loss, tokens, and how
// long it waited for others, by the axis along which they stand.
#pragma once

#include <array>
#include <cstdint>

namespace pretrain {

// Seconds of a step.
struct AxisWaits {
  double tensor_s = 0;
  double context_s = 0;
  double pipeline_s = 0;  // for messages on their way
  double bubble_s = 0;    // for what a neighbour had not computed yet
  double data_s = 0;      // for tokens that were not read yet
};

struct AxisField {
  const char* name;  // in the log, without its unit
  const char* words;
  double AxisWaits::*seconds;
};
inline constexpr std::array kAxes = {
    AxisField{"tp_exposed", "exposed along tp", &AxisWaits::tensor_s},
    AxisField{"cp_exposed", "exposed along cp", &AxisWaits::context_s},
    AxisField{"pp_exposed", "exposed along pp", &AxisWaits::pipeline_s},
    AxisField{"bubble", "bubble of the pipeline", &AxisWaits::bubble_s},
    AxisField{"data", "waiting for tokens", &AxisWaits::data_s},
};

struct PassSums {
  double loss_sum = 0;      // 0 on ranks that do not tell it (Split::tells_loss)
  std::int64_t tokens = 0;  // that count, of this rank's part of the sequences
  AxisWaits waits;
};

}  // namespace pretrain
