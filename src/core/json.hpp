// core/json.hpp - reading small JSON documents strictly: tables that people may edit by hand.
//
// RFC 8259 with three limits: at most 32 levels, no field twice in an object, and only \u escapes
// of the basic plane without surrogates. Cold paths only; writers print their text themselves.
//
//   auto document = Json::parse(text);
//   const Json* cores = document.ok() ? document->find("cores") : nullptr;
#pragma once

#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "tutti/status.hpp"

namespace tutti {

struct Json {
  enum class Kind : std::uint8_t { null, boolean, number, string, array, object };

  Kind kind = Kind::null;
  bool boolean = false;
  double number = 0;
  std::string string;
  std::vector<Json> items;                           // array
  std::vector<std::pair<std::string, Json>> fields;  // object, in the order of the text

  // Code::corrupt names the line and what is wrong there.
  static Result<Json> parse(std::string_view text);
  // Null when there is no such field.
  const Json* find(std::string_view name) const;
};

// `text` between quotes, with everything escaped that must be.
std::string json_quoted(std::string_view text);

}  // namespace tutti
