// core/json.hpp - a JSON value: read strictly, built in one expression, written as text.
//
// RapidJSON reads and writes the text; this is the value in between. RFC 8259 with two limits: at
// most 32 levels, and no field twice in an object. Text is UTF-8: what is not, parse() refuses and
// dump() replaces by U+FFFD. Whole numbers keep all their 64 bits. Cold paths only.
//
// Reading is forgiving: what is not there is null, and null is 0, "", false or empty, as is a value
// of another kind. Who has to know asks kind(), find() or whole().
//
//   auto document = Json::parse(text);
//   if (document.ok()) start((*document)["cores"].integer());
//   fmt::print("{}\n", Json{{"name", name}, {"sizes", sizes}, {"best", Json::array({1, "b"})}}.dump());
#pragma once

#include <concepts>
#include <initializer_list>
#include <optional>
#include <ranges>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include "tutti/status.hpp"

namespace tutti {

struct JsonField;

class Json {
 public:
  enum class Kind : std::uint8_t { null, boolean, number, string, array, object };
  using Array = std::vector<Json>;
  using Object = std::vector<std::pair<std::string, Json>>;  // in the order of text or making

  Json() = default;
  Json(std::nullptr_t) {}
  Json(const char* text) : value_(std::string(text)) {}
  Json(std::string_view text) : value_(std::string(text)) {}
  Json(std::string text) : value_(std::move(text)) {}
  Json(Array items) : value_(std::move(items)) {}
  Json(Object fields) : value_(std::move(fields)) {}
  Json(std::initializer_list<JsonField> fields);  // an object
  template <class T>
  requires std::is_arithmetic_v<T> Json(T number);
  // Null when there is nothing.
  template <class T>
  Json(const std::optional<T>& value) {
    if (value) *this = Json(*value);
  }
  // An object of a map, an array of any other range.
  template <class Range>
  requires(!std::same_as<Range, Json> && !std::convertible_to<Range, std::string_view> &&
           std::ranges::input_range<const Range>) Json(const Range& range);

  static Json array(std::initializer_list<Json> items = {}) { return Array(items); }
  static Json object() { return Object(); }

  // Code::corrupt names the line and what is wrong there.
  static Result<Json> parse(std::string_view text);

  Kind kind() const;
  bool is_null() const { return kind() == Kind::null; }
  bool boolean() const;
  double number() const;
  std::int64_t integer() const { return whole().value_or(0); }
  const std::string& string() const;
  const Array& items() const;
  const Object& fields() const;
  // Nothing when it is no number, has a fraction, or does not fit; 4.0 and 1e3 are whole.
  std::optional<std::int64_t> whole() const;

  // Null when there is no such field.
  const Json* find(std::string_view name) const;
  const Json& operator[](std::string_view name) const;
  const Json& operator[](std::size_t index) const;
  std::size_t size() const { return items().size() + fields().size(); }
  bool operator==(const Json& other) const;

  // These make an array or an object of what was null; with anything else they are a bug.
  void push_back(Json item);
  void append(std::string name, Json value);  // does not look whether it is there
  Json& operator[](std::string_view name);    // added when it is not there
  void update(const Json& object);            // with all its fields

  // In one line. A number that is not finite becomes null.
  std::string dump() const;
  // In lines, each level so many blanks further in.
  std::string dump(unsigned indent) const;
  // In one line, with escapes for whatever is not ASCII.
  std::string dump_ascii() const;

 private:
  template <class Writer>
  void write(Writer& out) const;
  bool is_same_number(const Json& other) const;

  std::variant<std::monostate, bool, std::int64_t, std::uint64_t, double, std::string, Array,
               Object>
      value_;
};

// What an object is made of. The value can be moved out of an initializer list, which is const:
// else each level would copy all that lies below it.
struct JsonField {
  std::string_view name;
  mutable Json value;
};

// Whether `text` reads back from a document as it went in.
bool is_utf8(std::string_view text);
// `text` between quotes, with everything escaped that must be.
std::string json_quoted(std::string_view text);

template <class T>
requires std::is_arithmetic_v<T> Json::Json(T number) {
  if constexpr (std::same_as<T, bool>)
    value_ = number;
  else if constexpr (std::floating_point<T>)
    value_ = static_cast<double>(number);
  else if (std::in_range<std::int64_t>(number))  // one form for each number, so that == holds
    value_ = static_cast<std::int64_t>(number);
  else
    value_ = static_cast<std::uint64_t>(number);
}

template <class Range>
requires(!std::same_as<Range, Json> && !std::convertible_to<Range, std::string_view> &&
         std::ranges::input_range<const Range>) Json::Json(const Range& range) {
  if constexpr (requires { typename Range::mapped_type; }) {
    Object& fields = value_.emplace<Object>();
    for (const auto& [name, value] : range) fields.emplace_back(name, value);
  } else {
    Array& items = value_.emplace<Array>();
    for (const auto& item : range) items.emplace_back(item);
  }
}

}  // namespace tutti
