// tool/info_fabrics.hpp - the part of `tutti info` about fabrics: what libfabric finds here, and what ofi would use.
#pragma once

#include <string>

#include "core/json.hpp"

namespace tutti::tool {

// docs/formats/info.md has the fields. Loads libfabric and its providers.
Json fabric_facts();
// The same for people, lines of it.
std::string fabric_text(const Json& facts);

}  // namespace tutti::tool
