// schedule/host/text.hpp - host forms as text, one move a line, and as JSON. For people, goldens and
// `tutti show --form host`; docs/formats/host_form.md describes both.
#pragma once

#include <span>
#include <string>

#include "schedule/host/form.hpp"

namespace tutti::schedule {

std::string print(const HostMove& move);  // one line, without its end
std::string print(const HostFold& fold);
std::string print(const HostForm& form);
std::string print(std::span<const HostForm> forms);
// The phases of one rank, as a JSON array of {"moves": […], "fold": …}.
std::string print_json_phases(const HostForm& form);

}  // namespace tutti::schedule
