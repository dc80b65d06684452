// tool/bench/table.hpp - rows as a lined-up table, in nccl-tests' columns and a few more.
#pragma once

#include <string>
#include <vector>

#include "tool/bench/options.hpp"
#include "tool/bench/row.hpp"
#include "tool/fitted_table.hpp"

namespace tutti::tool {

// Its columns, as many as fit into options.columns.
FittedTable bench_table(const BenchOptions& options);
// A few lines; each begins with "#".
std::string table_head(const FittedTable& table, const BenchOptions& options, int ranks,
                       const std::string& transport);
// One line of one size and algorithm; a form that was not measured is null.
std::string table_line(const FittedTable& table, const Row* out_of_place, const Row* in_place);
// One line per collective.
std::string summary_table(const std::vector<Row>& rows);

// "0.27", "15.4", "33016": three digits that count.
std::string time_words(double time_us);

}  // namespace tutti::tool
