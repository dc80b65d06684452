// apps/pretrain_gpt/compute_peak.hpp - what the ranks' devices can compute: what a step's use of them is a share of.
//
// Ordering       collective.
#pragma once

#include "flags.hpp"
#include "tutti/group.hpp"

namespace pretrain {

struct ComputePeak {
  double flops_per_s = 0;  // of a rank, on average
  bool measured = false;   // else by --peak-flops
};

// Without --peak-flops by matrix products in the model's type, on all ranks at once: what shares a device
// or cores gets its share. Some 0.1 s.
tutti::Result<ComputePeak> find_compute_peak(tutti::Group& group, const Flags& flags);

}  // namespace pretrain
