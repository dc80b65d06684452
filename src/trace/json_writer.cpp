#include "trace/json_writer.hpp"

namespace tutti::trace {

void JsonWriter::open(char bracket) {
  bracket == '{' ? writer_.StartObject() : writer_.StartArray();
}

void JsonWriter::close(char bracket) { bracket == '}' ? writer_.EndObject() : writer_.EndArray(); }

void JsonWriter::key(std::string_view name) { put(name); }

void JsonWriter::value(std::string_view text) { put(text); }

void JsonWriter::field(std::string_view name, std::int64_t number) {
  key(name);
  writer_.Int64(number);
}

void JsonWriter::field(std::string_view name, std::string_view text) {
  key(name);
  put(text);
}

void JsonWriter::finish() {
  out_.Put('\n');
  out_.hand_out();
}

void JsonWriter::put(std::string_view text) {
  writer_.String(text.data(), static_cast<rapidjson::SizeType>(text.size()));
}

void JsonWriter::Out::hand_out() {
  flush(target, {buffer, size});
  size = 0;
}

}  // namespace tutti::trace
