// tool/bench/report.hpp - rows as JSON (docs/formats/bench.md).
#pragma once

#include <string>
#include <vector>

#include "core/json.hpp"
#include "tool/bench/row.hpp"

namespace tutti::tool {

Json row_json(const Row& row);
// This machine in a few words.
Json machine_json();
// "2026-11-15T04:59:00Z"
std::string date_word();
// The text of a report: `machine` is machine_json().
std::string report_text(const Json& machine, const std::vector<Row>& rows);
// How many results a report holds that was written since `date`; 0 where there is none.
std::size_t results_since(const std::string& path, const std::string& date);

}  // namespace tutti::tool
