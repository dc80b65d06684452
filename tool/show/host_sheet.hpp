// tool/show/host_sheet.hpp - the still drawing of a host form.
#pragma once

#include <string>

#include "tool/show/show.hpp"

namespace tutti::tool {

// Of the form that runs for this call with its memory.
std::string draw_host_form(const ShownCall& call, const HostView& view);

}  // namespace tutti::tool
