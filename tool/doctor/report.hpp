// tool/doctor/report.hpp - an examination for people, and for programs.
#pragma once

#include <string>

#include "tool/doctor/diagnosis.hpp"

namespace tutti::tool::doctor {

// A row for each host, then what was found and what to do.
std::string to_text(const Examination& examination, std::size_t width);
Json to_report(const Examination& examination);
// Whether something has to be mended.
bool is_ill(const Examination& examination);

}  // namespace tutti::tool::doctor
