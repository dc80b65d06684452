// tool/bench/report.hpp - rows as JSON (docs/formats/bench.md).
#pragma once

#include <string>
#include <vector>

#include "core/json.hpp"
#include "tool/bench/row.hpp"
#include "tutti/status.hpp"

namespace tutti::tool {

Json row_json(const Row& row);
// This machine in a few words.
Json machine_json();
// "2026-11-15T04:59:00Z"
std::string date_word();
// "-" is standard output.
Status write_json(const std::string& path, const Json& document);
Status write_report(const std::string& path, const std::vector<Row>& rows);

}  // namespace tutti::tool
