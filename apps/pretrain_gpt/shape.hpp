// apps/pretrain_gpt/shape.hpp - the model that the flags describe: a GPT with Megatron's defaults, Llama's parts one by
// one, or a preset of tutti plan.
#pragma once

#include "flags.hpp"
#include "tutti/plan/model.hpp"

namespace CLI {
class App;
}

namespace pretrain {

void add_shape(CLI::App& app, Flags& flags);
// What --preset says, for flags that were not given; throws CLI::ValidationError where there is none of that name.
void take_preset(const CLI::App& app, Flags& flags);
tutti::Status check_shape(const Flags& flags);
// As tutti plan has models. Where positions are rotary, norms are RMSNorm and biases absent, or none of it.
tutti::Result<tutti::plan::Model> shape_of(const Flags& flags);

}  // namespace pretrain
