// train/take_number.hpp - reading the small texts that this room writes: words and numbers in
// a fixed order.
#pragma once

#include <charconv>
#include <string_view>

namespace tutti::train {

// Takes `word` and the number behind it from the beginning of `text`. False: they are not there.
template <class Number>
bool take_number(std::string_view& text, std::string_view word, Number& value) {
  if (!text.starts_with(word)) return false;
  text.remove_prefix(word.size());
  const auto read = std::from_chars(text.data(), text.data() + text.size(), value);
  text.remove_prefix(static_cast<std::size_t>(read.ptr - text.data()));
  return read.ec == std::errc();
}

}  // namespace tutti::train
