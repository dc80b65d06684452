// tool/show/host_sheet.hpp - the still drawing of a host form.
#pragma once

#include <string>

#include "tool/show/show.hpp"

namespace tutti::tool {

// Of the form that runs for this call with its memory; ordinary where none was named. Needs call.host.
std::string draw_host_form(const ShownCall& call);

}  // namespace tutti::tool
