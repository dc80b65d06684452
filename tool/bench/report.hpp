// tool/bench/report.hpp - rows as JSON (docs/formats/bench.md).
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "core/json.hpp"
#include "cuda/device.hpp"
#include "tool/bench/row.hpp"

namespace tutti::tool {

Json row_json(const Row& row);
// This machine in a few words.
Json machine_json();
// Its GPU, and what copies reach there that all ranks make at once.
void add_device(Json& machine, const cuda::DeviceFacts& facts, std::optional<double> ceiling_gbs);
// "2026-11-15T04:59:00Z"
std::string date_word();
// The text of a report: `machine` is machine_json().
std::string report_text(const Json& machine, const std::vector<Row>& rows);
// How many results a report holds that was written since `date`; 0 where there is none.
std::size_t results_since(const std::string& path, const std::string& date);

}  // namespace tutti::tool
