// tool/run/report.hpp - how a job went, for programs: `tutti run --json FILE` (docs/formats/run.md).
#pragma once

#include <string>
#include <vector>

#include "core/board.hpp"
#include "core/json.hpp"
#include "tool/run/options.hpp"
#include "tool/run/verdict.hpp"

namespace tutti::tool {

// One rank's end.
Json rank_report(const Ending& ending, const std::optional<BoardNote>& note);
// One report of several launchers': their ranks together, the first failure that one of them saw.
Json merge_reports(const std::vector<Json>& reports, int exit_code);

// What a report says of an attempt after which the job was restarted.
Json attempt_report(const Json& report);

// Writes it where the user wants it; returns the code to end with, which a report that cannot be
// written makes a failure. `report` is null where no rank was started.
int write_report(const RunOptions& options, Json report, int exit_code);

}  // namespace tutti::tool
