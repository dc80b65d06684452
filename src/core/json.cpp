#include "core/json.hpp"

#include <cmath>

#include "core/check.hpp"

namespace tutti {
namespace {

template <class T, class Value>
const T& get_or_nothing(const Value& value) {
  static const T nothing{};
  const T* found = std::get_if<T>(&value);
  return found != nullptr ? *found : nothing;
}

const Json& or_null(const Json* json) {
  static const Json null;
  return json != nullptr ? *json : null;
}

}  // namespace

Json::Json(std::initializer_list<JsonField> fields) : value_(Object()) {
  for (const JsonField& field : fields) append(std::string(field.name), std::move(field.value));
}

Json::Kind Json::kind() const {
  static constexpr Kind kKinds[] = {Kind::null,   Kind::boolean, Kind::number, Kind::number,
                                    Kind::number, Kind::string,  Kind::array,  Kind::object};
  return kKinds[value_.index()];
}

bool Json::boolean() const { return get_or_nothing<bool>(value_); }
const std::string& Json::string() const { return get_or_nothing<std::string>(value_); }
const Json::Array& Json::items() const { return get_or_nothing<Array>(value_); }
const Json::Object& Json::fields() const { return get_or_nothing<Object>(value_); }

double Json::number() const {
  if (const auto* number = std::get_if<std::int64_t>(&value_)) return static_cast<double>(*number);
  if (const auto* number = std::get_if<std::uint64_t>(&value_)) return static_cast<double>(*number);
  return get_or_nothing<double>(value_);
}

std::optional<std::int64_t> Json::whole() const {
  if (const auto* number = std::get_if<std::int64_t>(&value_)) return *number;
  constexpr double kExact = 9007199254740992.0;  // 2^53
  const auto* number = std::get_if<double>(&value_);
  if (number == nullptr || std::abs(*number) > kExact || *number != std::trunc(*number)) return {};
  return static_cast<std::int64_t>(*number);
}

const Json* Json::find(std::string_view name) const {
  for (const auto& [key, value] : fields())
    if (key == name) return &value;
  return nullptr;
}

const Json& Json::operator[](std::string_view name) const { return or_null(find(name)); }
const Json& Json::operator[](std::size_t index) const {
  return or_null(index < items().size() ? &items()[index] : nullptr);
}
// Spelled out: clang 14 dies of a defaulted one, whose variant holds its own kind.
bool Json::operator==(const Json& other) const {
  if (value_.index() != other.value_.index()) return false;
  switch (kind()) {
    case Kind::null: return true;
    case Kind::boolean: return boolean() == other.boolean();
    case Kind::number: return is_same_number(other);
    case Kind::string: return string() == other.string();
    case Kind::array: return items() == other.items();
    case Kind::object: return fields() == other.fields();
  }
  return false;
}

// As they are held, so that no bit of a whole number is lost.
bool Json::is_same_number(const Json& other) const {
  if (const auto* number = std::get_if<std::int64_t>(&value_))
    return *number == std::get<std::int64_t>(other.value_);
  if (const auto* number = std::get_if<std::uint64_t>(&value_))
    return *number == std::get<std::uint64_t>(other.value_);
  return number() == other.number();
}

void Json::push_back(Json item) {
  if (is_null()) value_ = Array();
  TUTTI_CHECK(kind() == Kind::array);
  std::get<Array>(value_).push_back(std::move(item));
}

void Json::append(std::string name, Json value) {
  if (is_null()) value_ = Object();
  TUTTI_CHECK(kind() == Kind::object);
  std::get<Object>(value_).emplace_back(std::move(name), std::move(value));
}

Json& Json::operator[](std::string_view name) {
  if (find(name) == nullptr) append(std::string(name), {});
  return const_cast<Json&>(*find(name));
}

void Json::update(const Json& object) {
  for (const auto& [name, value] : object.fields()) (*this)[name] = value;
}

}  // namespace tutti
