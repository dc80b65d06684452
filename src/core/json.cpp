#include "core/json.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>

namespace tutti {
namespace {

constexpr int kDeepest = 32;

class Reader {
 public:
  explicit Reader(std::string_view text) : text_(text) {}

  Result<Json> document() {
    Json value;
    if (!read(value, 0)) return failure();
    skip_blanks();
    if (at_ != text_.size()) {
      complain("there is text after the end of the document");
      return failure();
    }
    return value;
  }

 private:
  bool complain(std::string what) {
    if (wrong_.empty()) wrong_ = std::move(what);
    return false;
  }
  Status failure() const {
    const auto upto = text_.substr(0, std::min(at_, text_.size()));
    return {Code::corrupt,
            fmt::format("line {}: {}", 1 + std::count(upto.begin(), upto.end(), '\n'), wrong_)};
  }

  void skip_blanks() {
    while (at_ < text_.size() && std::string_view(" \t\r\n").find(text_[at_]) != text_.npos) ++at_;
  }
  // The next letter that is no blank; 0 at the end.
  char next() {
    skip_blanks();
    return at_ < text_.size() ? text_[at_] : '\0';
  }
  bool take(char letter) {
    if (next() != letter) return false;
    ++at_;
    return true;
  }
  bool take_word(std::string_view word) {
    if (text_.substr(at_, word.size()) != word) return complain("there is a word of no meaning");
    at_ += word.size();
    return true;
  }

  bool read(Json& value, int depth) {
    if (depth > kDeepest) return complain("it is nested too deeply");
    switch (next()) {
      case '{': return read_object(value, depth);
      case '[': return read_array(value, depth);
      case '"': value.kind = Json::Kind::string; return read_string(value.string);
      case 't':
        value.kind = Json::Kind::boolean;
        value.boolean = true;
        return take_word("true");
      case 'f': value.kind = Json::Kind::boolean; return take_word("false");
      case 'n': return take_word("null");
      case '\0': return complain("it ends too early");
      default: return read_number(value);
    }
  }

  bool read_object(Json& value, int depth) {
    value.kind = Json::Kind::object;
    ++at_;
    if (take('}')) return true;
    do {
      std::string name;
      if (next() != '"') return complain("a field has no name in quotes");
      if (!read_string(name)) return false;
      if (value.find(name) != nullptr) return complain(fmt::format("'{}' is there twice", name));
      if (!take(':')) return complain(fmt::format("there is no ':' after '{}'", name));
      value.fields.emplace_back(std::move(name), Json());
      if (!read(value.fields.back().second, depth + 1)) return false;
    } while (take(','));
    return take('}') || complain("an object is not closed");
  }

  bool read_array(Json& value, int depth) {
    value.kind = Json::Kind::array;
    ++at_;
    if (take(']')) return true;
    do {
      value.items.emplace_back();
      if (!read(value.items.back(), depth + 1)) return false;
    } while (take(','));
    return take(']') || complain("an array is not closed");
  }

  // As the grammar has it: -?(0|[1-9][0-9]*)(.[0-9]+)?([eE][+-]?[0-9]+)?
  bool read_number(Json& value) {
    const std::size_t start = at_;
    const auto digits = [&] {
      const std::size_t first = at_;
      while (at_ < text_.size() && text_[at_] >= '0' && text_[at_] <= '9') ++at_;
      return at_ - first;
    };
    const auto is = [&](std::string_view letters) {
      return at_ < text_.size() && letters.find(text_[at_]) != letters.npos;
    };
    if (is("-")) ++at_;
    const bool zero = is("0");
    const std::size_t whole = digits();
    bool good = whole > 0 && (!zero || whole == 1);
    if (is(".")) good &= (++at_, digits() > 0);
    if (is("eE")) {
      ++at_;
      if (is("+-")) ++at_;
      good &= digits() > 0;
    }
    if (!good) return complain("there is neither a value nor a number");
    value.kind = Json::Kind::number;
    const auto read = std::from_chars(text_.data() + start, text_.data() + at_, value.number);
    return read.ec == std::errc() || complain("a number is too large or too small");
  }

  bool read_string(std::string& out) {
    for (++at_; at_ < text_.size(); ++at_) {
      const char letter = text_[at_];
      if (letter == '"') return ++at_, true;
      if (static_cast<unsigned char>(letter) < 0x20)
        return complain("a string has a control character in it");
      if (letter != '\\')
        out += letter;
      else if (!read_escape(out))
        return false;
    }
    return complain("a string is not closed");
  }

  bool read_escape(std::string& out) {
    static constexpr std::string_view kNames = "\"\\/bfnrt";
    static constexpr std::string_view kMeans = "\"\\/\b\f\n\r\t";
    const char letter = ++at_ < text_.size() ? text_[at_] : '\0';
    if (letter == 'u') return read_code_point(out);
    const std::size_t index = kNames.find(letter);
    if (letter == '\0' || index == kNames.npos) return complain("an escape has no meaning");
    out += kMeans[index];
    return true;
  }

  bool read_code_point(std::string& out) {
    unsigned code = 0;
    const std::string_view digits = text_.substr(std::min(at_ + 1, text_.size()), 4);
    const auto [end, error] =
        std::from_chars(digits.data(), digits.data() + digits.size(), code, 16);
    if (error != std::errc() || end != digits.data() + 4 || (code >= 0xd800 && code < 0xe000))
      return complain("a \\u escape cannot be read");
    at_ += 4;
    if (code < 0x80) {
      out += static_cast<char>(code);
    } else if (code < 0x800) {
      out += static_cast<char>(0xc0 | code >> 6);
      out += static_cast<char>(0x80 | (code & 0x3f));
    } else {
      out += static_cast<char>(0xe0 | code >> 12);
      out += static_cast<char>(0x80 | (code >> 6 & 0x3f));
      out += static_cast<char>(0x80 | (code & 0x3f));
    }
    return true;
  }

  std::string_view text_;
  std::size_t at_ = 0;
  std::string wrong_;
};

}  // namespace

Result<Json> Json::parse(std::string_view text) { return Reader(text).document(); }

const Json* Json::find(std::string_view name) const {
  for (const auto& [key, value] : fields)
    if (key == name) return &value;
  return nullptr;
}

std::string json_quoted(std::string_view text) {
  std::string quoted = "\"";
  for (const char letter : text) {
    if (letter == '"' || letter == '\\')
      quoted += {'\\', letter};
    else if (static_cast<unsigned char>(letter) < 0x20)
      quoted += fmt::format("\\u{:04x}", static_cast<unsigned>(letter));
    else
      quoted += letter;
  }
  return quoted + '"';
}

}  // namespace tutti
