#include "trace/json_writer.hpp"

#include <charconv>

namespace tutti::trace {

void JsonWriter::open(char bracket) {
  separate();
  put(bracket);
  comma_ = false;
}

void JsonWriter::close(char bracket) {
  put(bracket);
  comma_ = true;
}

void JsonWriter::key(std::string_view name) {
  separate();
  put('"');
  put_escaped(name);
  put("\":");
  comma_ = false;
}

void JsonWriter::field(std::string_view name, std::int64_t number) {
  key(name);
  put_number(number);
  comma_ = true;
}

void JsonWriter::field(std::string_view name, std::string_view text) {
  key(name);
  put('"');
  put_escaped(text);
  put('"');
  comma_ = true;
}

void JsonWriter::finish() {
  put('\n');
  if (size_ > 0) flush_(target_, {buffer_, size_});
  size_ = 0;
}

void JsonWriter::put(char letter) {
  if (size_ == sizeof buffer_) {
    flush_(target_, {buffer_, size_});
    size_ = 0;
  }
  buffer_[size_++] = letter;
}

void JsonWriter::put(std::string_view text) {
  for (char letter : text) put(letter);
}

void JsonWriter::put_escaped(std::string_view text) {
  for (char letter : text) {
    if (letter == '"' || letter == '\\') put('\\');
    if (letter == '\n')
      put("\\n");
    else
      put(letter >= ' ' && letter <= '~' ? letter : '?');
  }
}

void JsonWriter::put_number(std::int64_t number) {
  char digits[24];
  const auto [end, error] = std::to_chars(digits, digits + sizeof digits, number);
  put({digits, static_cast<std::size_t>(end - digits)});
}

void JsonWriter::separate() {
  if (comma_) put(',');
}

}  // namespace tutti::trace
