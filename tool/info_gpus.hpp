// tool/info_gpus.hpp - the part of `tutti info` about GPUs: what there is, asked without using any.
#pragma once

#include <string>

#include "core/json.hpp"

namespace tutti::tool {

// docs/formats/info.md has the fields. Loads and initialises the driver; makes no context.
Json gpu_facts();
// The same for people, lines of it.
std::string gpu_text(const Json& facts);

}  // namespace tutti::tool
