// tool/numbers.hpp - what numbers a flag takes, and other values. What lies outside is refused by name, before anything
// happens: CLI11 puts the flag before the message.
//
//   parser.add_option("-n,--ranks", ranks, "ranks")->check(between(1, 4096));
//   tutti bench: --ranks: 0 lies outside 1 … 4096 (see tutti bench --help)
#pragma once

#include <CLI/CLI.hpp>
#include <chrono>
#include <cstdint>
#include <string>

#include "tutti/status.hpp"

namespace tutti::tool {

// Whole numbers, both ends included.
CLI::Validator between(std::int64_t least, std::int64_t most);
// More than 0, at most 1.
CLI::Validator share();
// Any text but the empty one, which a variable of a script is when nobody has set it.
CLI::Validator filled();

// "--time 1 lies outside 8 s … 1 h". The words stand for the ends.
Result<std::chrono::nanoseconds> read_duration(const char* flag, const std::string& text,
                                               std::chrono::nanoseconds least,
                                               std::chrono::nanoseconds most);
// More than 0.
Result<std::size_t> read_size(const char* flag, const std::string& text);

}  // namespace tutti::tool
