// core/words.hpp - the small reading of words and numbers that configuration and addresses need.
#pragma once

#include <chrono>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "tutti/status.hpp"

namespace tutti {

// The non-empty parts of `text`, without the blanks around them.
std::vector<std::string_view> split_words(std::string_view text, char separator);
// Equal but for upper and lower case (ASCII).
bool same_letters(std::string_view a, std::string_view b);
// "a, b, c".
std::string list_words(std::span<const std::string_view> words);
// "there is no subsystem 'NETT'; there are: INIT, NET, …".
std::string unknown_word(std::string_view what, std::string_view word,
                         std::span<const std::string_view> right_ones);

// Two small digits a byte, and back; what is no digit is nothing.
std::string to_hex(std::string_view bytes);
std::string from_hex(std::string_view text);

// The one that `word` is most likely a slip of; empty where it resembles none.
std::string_view nearest_word(std::string_view word, std::span<const std::string_view> right_ones);

// Whole strings only; Code::invalid_argument quotes what cannot be read.
Result<std::int64_t> parse_integer(std::string_view text);
// "65536", "64K", "1M", "2GiB": units are powers of 1024.
Result<std::size_t> parse_bytes(std::string_view text);
// "30", "0.5", "500ms", "30s", "5m", "1h": seconds where no unit is given.
Result<std::chrono::nanoseconds> parse_duration(std::string_view text);
// 1/0, true/false, yes/no, on/off.
Result<bool> parse_switch(std::string_view text);

}  // namespace tutti
