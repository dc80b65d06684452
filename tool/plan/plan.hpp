// tool/plan/plan.hpp - the questions of `tutti plan`, one file each.
#pragma once

#include "tool/command.hpp"

namespace tutti::tool::plan {

// Each adds itself as a subcommand of `plan`.
Command make_model(CLI::App& plan);
Command make_search(CLI::App& plan);
Command make_collective(CLI::App& plan);
Command make_calibrate(CLI::App& plan);
Command make_validate(CLI::App& plan);
// Hidden: what calibrate and validate start their ranks with.
Command make_measure(CLI::App& plan);

}  // namespace tutti::tool::plan
