// tool/trace/trace.hpp - the questions of `tutti trace`, one file each.
#pragma once

#include "tool/command.hpp"

namespace tutti::tool::trace {

// Each adds itself as a subcommand of `trace`.
Command make_merge(CLI::App& trace);
Command make_report(CLI::App& trace);
Command make_hang(CLI::App& trace);

}  // namespace tutti::tool::trace
