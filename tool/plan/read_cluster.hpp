// tool/plan/read_cluster.hpp - what --cluster means: the name of a preset, or a file.
#pragma once

#include <string>

#include "plan/cluster.hpp"

namespace tutti::tool::plan {

// A word with a slash or ending in .json is a file. invalid_argument names it and what is wrong.
Result<tutti::plan::Cluster> read_cluster(const std::string& word);

}  // namespace tutti::tool::plan
