// The text of core/json.hpp's values: read and written by RapidJSON, of which nothing is used but
// Reader and Writer.
#include <fmt/format.h>
#include <rapidjson/error/en.h>
#include <rapidjson/memorystream.h>
#include <rapidjson/prettywriter.h>
#include <rapidjson/reader.h>
#include <rapidjson/stringbuffer.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <unordered_set>

#include "core/json.hpp"

namespace tutti {
namespace {

constexpr std::size_t kDeepest = 32;

// With U+FFFD for every byte that is no UTF-8. MemoryStream ends where the text does; RapidJSON's
// other streams would read beyond a letter that is cut off.
std::string as_utf8(std::string_view text) {
  std::string out;
  while (!text.empty()) {
    rapidjson::MemoryStream in(text.data(), text.size());
    unsigned code = 0;
    const bool good = rapidjson::UTF8<>::Decode(in, &code);
    out += good ? text.substr(0, in.Tell()) : "\xef\xbf\xbd";
    text.remove_prefix(good ? in.Tell() : 1);
  }
  return out;
}

// Hears from rapidjson::Reader what stands in the text. What returns false ends the reading.
class Builder : public rapidjson::BaseReaderHandler<rapidjson::UTF8<>, Builder> {
 public:
  bool Null() { return place({}); }
  bool Bool(bool value) { return place(value); }
  bool StartArray() { return open(Json::array()); }
  bool EndArray(rapidjson::SizeType) { return close(); }
  bool StartObject() { return open(Json::object()); }
  bool EndObject(rapidjson::SizeType) { return close(); }

  // RapidJSON has checked the grammar; from_chars finds the nearest double, always.
  bool RawNumber(const char* text, rapidjson::SizeType length, bool) {
    const auto read = [&](auto number) {
      const auto [end, error] = std::from_chars(text, text + length, number);
      return error == std::errc() && end == text + length && place(number);
    };
    return read(std::int64_t()) || read(std::uint64_t()) || read(double()) ||
           refuse("a number is too large or too small");
  }

  bool String(const char* text, rapidjson::SizeType length, bool) {
    std::string value(text, length);
    return check(value) && place(std::move(value));
  }

  bool Key(const char* text, rapidjson::SizeType length, bool) {
    Level& level = levels_.back();
    level.name.assign(text, length);
    return check(level.name) && (level.names.insert(level.name).second ||
                                 refuse(fmt::format("'{}' is there twice", level.name)));
  }

  const std::string& wrong() const { return wrong_; }
  Json take() { return std::move(root_); }

 private:
  // An array or object that is not closed yet.
  struct Level {
    Json value;
    std::string name;  // of the field to come
    std::unordered_set<std::string> names;
  };

  bool refuse(std::string what) {
    wrong_ = std::move(what);
    return false;
  }

  // Escapes too: RapidJSON 1.1 takes the second half of a surrogate pair without the first.
  bool check(const std::string& text) { return is_utf8(text) || refuse("a string is not UTF-8"); }

  bool place(Json value) {
    if (levels_.empty())
      root_ = std::move(value);
    else if (Level& level = levels_.back(); level.value.kind() == Json::Kind::array)
      level.value.push_back(std::move(value));
    else
      level.value.append(std::move(level.name), std::move(value));
    return true;
  }

  bool open(Json value) {
    if (levels_.size() == kDeepest)
      return refuse(fmt::format("it has more than {} levels", kDeepest));
    levels_.push_back({std::move(value), {}, {}});
    return true;
  }

  bool close() {
    Json value = std::move(levels_.back().value);
    levels_.pop_back();
    return place(std::move(value));
  }

  Json root_;
  std::vector<Level> levels_;
  std::string wrong_;
};

}  // namespace

Result<Json> Json::parse(std::string_view text) {
  rapidjson::MemoryStream in(text.data(), text.size());
  rapidjson::Reader reader;
  Builder builder;
  const auto result = reader.Parse<rapidjson::kParseNumbersAsStringsFlag>(in, builder);
  // A zero byte is the end of the text for RapidJSON.
  if (!result.IsError() && in.Tell() == text.size()) return builder.take();
  const std::size_t at = result.IsError() ? result.Offset() : in.Tell();
  const std::string wrong = !result.IsError()          ? "A zero byte follows the document."
                            : !builder.wrong().empty() ? builder.wrong()
                                                       : rapidjson::GetParseError_En(result.Code());
  const auto before = text.substr(0, at);
  return Status(
      Code::corrupt,
      fmt::format("line {}: {}", 1 + std::count(before.begin(), before.end(), '\n'), wrong));
}

template <class Writer>
void Json::write(Writer& out) const {
  const auto put = [&](const std::string& text) {
    const std::string good = as_utf8(text);
    out.String(good.data(), static_cast<rapidjson::SizeType>(good.size()));
  };
  switch (kind()) {
    case Kind::null: out.Null(); break;
    case Kind::boolean: out.Bool(boolean()); break;
    case Kind::string: put(string()); break;
    case Kind::number:
      if (const auto* number = std::get_if<std::int64_t>(&value_))
        out.Int64(*number);
      else if (const auto* number = std::get_if<std::uint64_t>(&value_))
        out.Uint64(*number);
      else if (std::isfinite(this->number()))
        out.Double(this->number());
      else
        out.Null();
      break;
    case Kind::array:
      out.StartArray();
      for (const Json& item : items()) item.write(out);
      out.EndArray();
      break;
    case Kind::object:
      out.StartObject();
      for (const auto& [name, value] : fields()) put(name), value.write(out);
      out.EndObject();
      break;
  }
}

std::string Json::dump() const {
  rapidjson::StringBuffer text;
  rapidjson::Writer<rapidjson::StringBuffer> out(text);
  write(out);
  return text.GetString();
}

std::string Json::dump(unsigned indent) const {
  rapidjson::StringBuffer text;
  rapidjson::PrettyWriter<rapidjson::StringBuffer> out(text);
  out.SetIndent(' ', indent);
  write(out);
  return text.GetString();
}

std::string Json::dump_ascii() const {
  rapidjson::StringBuffer text;
  rapidjson::Writer<rapidjson::StringBuffer, rapidjson::UTF8<>, rapidjson::ASCII<>> out(text);
  write(out);
  return text.GetString();
}

bool is_utf8(std::string_view text) { return as_utf8(text) == text; }

std::string json_quoted(std::string_view text) { return Json(text).dump(); }

}  // namespace tutti
