// apps/pretrain_gpt/precision.hpp - in which numbers the model is kept, and gradients travel; by Megatron's flags.
#pragma once

#include "tutti/status.hpp"
#include "tutti/train/loss_scale.hpp"
#include "tutti/types.hpp"

namespace CLI {
class App;
}

namespace pretrain {

struct Flags;

// By what the loss is multiplied in a step.
struct LossFactor {
  double scale = 0;   // as flags, log and checkpoints have it: of the mean loss; 0: there is none
  double factor = 1;  // of the sum of losses, whose gradients are computed
};

void add_precision(CLI::App& app, Flags& flags);
tutti::Status check_precision(const Flags& flags);
// Of weights and activations.
tutti::Dtype weight_dtype(const Flags& flags);
const char* precision_name(const Flags& flags);
tutti::train::LossScale loss_scale_of(const Flags& flags);
// The sum of a step is that many times the mean, to the next power of two: then scaling changes no bit of what neither
// overflows nor vanishes.
LossFactor loss_factor(const Flags& flags, const tutti::train::LossScale& scale);

}  // namespace pretrain
