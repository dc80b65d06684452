// schedule/text.hpp - programs as text, for goldens, for `tutti show` and for people.
// The format is described in docs/formats/schedule.md; parse(print(p)) == p.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "schedule/schedule.hpp"

namespace tutti::schedule {

std::string print(const Op& op);  // one line, without its end
std::string print(const Program& program);
std::string print(std::span<const Program> programs);
std::string print_json(std::span<const Program> programs);
Result<std::vector<Program>> parse(std::string_view text);

}  // namespace tutti::schedule
