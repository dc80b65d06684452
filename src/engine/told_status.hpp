// engine/told_status.hpp - a status as ranks tell it to each other.
#pragma once

#include <string>
#include <string_view>

#include "tutti/status.hpp"

namespace tutti::engine {

// Its message is cut off where a control message ends.
std::string encode(const Status& status);
// Code::corrupt for bytes that are none.
Status decode(std::string_view bytes);

}  // namespace tutti::engine
