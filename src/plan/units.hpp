// plan/units.hpp - quantities as people write them: a number and its unit.
//
//   read_quantity("1.5 us", Unit::seconds)    1.5e-6
//   quantity_text(25e9, Unit::bytes_per_s)    "25 GB/s"
//
// Decimal prefixes are powers of 1000, KiB and its like of 1024. Text that was printed reads back
// as the same bits.
#pragma once

#include <string>
#include <string_view>

#include "tutti/status.hpp"

namespace tutti::plan {

enum class Unit : std::uint8_t { seconds, bytes, bytes_per_s, flops };

// Code::invalid_argument says what is wrong and which units there are; no number below zero.
Result<double> read_quantity(std::string_view text, Unit unit);
std::string quantity_text(double value, Unit unit);
// For tables: three digits and the unit that fits, "12.3 us".
std::string short_text(double value, Unit unit);

}  // namespace tutti::plan
