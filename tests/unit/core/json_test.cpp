#include "core/json.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>
#include <bit>
#include <chrono>
#include <cmath>
#include <limits>
#include <map>
#include <random>

#include "support/parsed_json.hpp"

namespace tutti {
namespace {

using testing::HasSubstr;

constexpr const char* kReplacement = "\xef\xbf\xbd";  // U+FFFD

void expect_refused(std::string_view text, const char* why) {
  const auto json = Json::parse(text);
  ASSERT_FALSE(json.ok()) << text;
  EXPECT_EQ(json.status().code(), Code::corrupt);
  EXPECT_THAT(json.status().message(), HasSubstr(why)) << text;
}

TEST(Json, values_of_every_kind_are_read) {
  const Json json =
      parsed(R"( {"a": [1, -2.5e3, 0, true, false, null], "b": {"c": "d"}, "e": []} )");
  ASSERT_EQ(json.fields().size(), 3U);
  const Json& list = *json.find("a");
  ASSERT_EQ(list.size(), 6U);
  EXPECT_EQ(list[0].whole(), 1);
  EXPECT_EQ(list[1].number(), -2500);
  EXPECT_TRUE(list[3].boolean());
  EXPECT_EQ(list[4].kind(), Json::Kind::boolean);
  EXPECT_TRUE(list[5].is_null());
  EXPECT_EQ(json["b"]["c"].string(), "d");
  EXPECT_EQ(json["e"].kind(), Json::Kind::array);
  EXPECT_EQ(json.find("nothing"), nullptr);
}

TEST(Json, what_is_not_there_reads_as_nothing) {
  const Json json = parsed(R"({"text": "7"})");
  EXPECT_TRUE(json["no"]["such"][3].is_null());
  EXPECT_EQ(json["text"].number(), 0);
  EXPECT_EQ(json["text"].integer(), 0);
  EXPECT_EQ(json["text"].whole(), std::nullopt);
  EXPECT_EQ(json["no"].string(), "");
  EXPECT_EQ(json["no"].size(), 0U);
}

TEST(Json, escapes_are_resolved) {
  EXPECT_EQ(parsed(R"("\"\\\/\b\f\n\r\t")").string(), "\"\\/\b\f\n\r\t");
  EXPECT_EQ(parsed(R"("\u0041\u00e4\u20ac")").string(), "A\xc3\xa4\xe2\x82\xac");
  EXPECT_EQ(parsed(R"("\ud83c\udfbb")").string(), "\xf0\x9f\x8e\xbb");
  EXPECT_EQ(parsed(R"("\u0000")").string(), std::string(1, '\0'));
}

TEST(Json, what_is_quoted_reads_back) {
  const std::string text = std::string("a \"b\" \\ c\n\x01 \xc3\xa4 \xf0\x9f\x8e\xbb /") + '\0';
  EXPECT_EQ(parsed(json_quoted(text)).string(), text);
  EXPECT_EQ(parsed(Json(text).dump_ascii()).string(), text);
  EXPECT_EQ(json_quoted("plain"), "\"plain\"");
}

TEST(Json, bytes_that_are_no_utf8_are_refused_in_text_and_replaced_in_writing) {
  // A byte too many, a letter cut off, an overlong form, half of a surrogate pair, beyond Unicode.
  for (const std::string bad :
       {"\xff", "\xe2\x82", "\xf0", "\xc0\xaf", "\xed\xa0\x80", "\xf4\x90\x80\x80"}) {
    EXPECT_FALSE(is_utf8("a" + bad));
    expect_refused("[\"a" + bad + "\"]", "not UTF-8");
    expect_refused("{\"a" + bad + "\": 1}", "not UTF-8");
    const std::string written = parsed(json_quoted("a" + bad)).string();
    EXPECT_TRUE(written.starts_with(std::string("a") + kReplacement)) << written;
    EXPECT_EQ(parsed(Json{{bad, 1}}.dump()).fields()[0].first.substr(0, 3), kReplacement);
  }
  EXPECT_EQ(json_quoted("\xff"
                        "b\xc3\xa4"),
            std::string("\"") + kReplacement + "b\xc3\xa4\"");
  EXPECT_EQ(Json("\xff"
                 "\xc3\xa4\xf0\x9f\x8e\xbb")
                .dump_ascii(),
            R"("\uFFFD\u00E4\uD83C\uDFBB")");
  expect_refused(R"("\udc00")", "not UTF-8");  // RapidJSON lets this pass
}

TEST(Json, numbers_are_only_those_of_the_grammar) {
  EXPECT_EQ(parsed("-0").number(), 0);
  EXPECT_EQ(parsed("1E+2").number(), 100);
  for (const char* text : {"01", "1.", ".5", "-", "+1", "1e", "nan", "0x1", "1e999", "Infinity",
                           "-1e309", "1e99999999999999999999"})
    EXPECT_FALSE(Json::parse(text).ok()) << text;
  EXPECT_FALSE(Json::parse(std::string(400, '9')).ok());
}

TEST(Json, whole_numbers_keep_their_64_bits) {
  EXPECT_EQ(parsed("-9223372036854775808").whole(), std::numeric_limits<std::int64_t>::min());
  EXPECT_EQ(parsed("9223372036854775807").whole(), std::numeric_limits<std::int64_t>::max());
  EXPECT_EQ(parsed("1763262000123456789").dump(), "1763262000123456789");
  EXPECT_EQ(parsed("18446744073709551615").dump(), "18446744073709551615");
  EXPECT_EQ(parsed("18446744073709551615"), Json(std::numeric_limits<std::uint64_t>::max()));
  EXPECT_EQ(parsed("18446744073709551615").whole(), std::nullopt);
  EXPECT_EQ(parsed("18446744073709551616").number(), 0x1p64);
  EXPECT_EQ(parsed("4.0").whole(), 4);
  EXPECT_EQ(parsed("1e3").whole(), 1000);
  EXPECT_EQ(parsed("4.5").whole(), std::nullopt);
  EXPECT_EQ(parsed("1e300").whole(), std::nullopt);
  EXPECT_EQ(Json(3U), Json(3));
}

TEST(Json, doubles_read_back_to_the_bit) {
  std::mt19937_64 random(7);
  for (int i = 0; i < 20000; ++i) {
    const double number = std::bit_cast<double>(random());
    if (!std::isfinite(number)) continue;
    const std::string text = Json(number).dump();
    ASSERT_EQ(std::bit_cast<std::uint64_t>(parsed(text).number()),
              std::bit_cast<std::uint64_t>(number))
        << text;
  }
  EXPECT_EQ(Json(0.1).dump(), "0.1");
  EXPECT_EQ(Json(1.0).dump(), "1.0");
  EXPECT_EQ(Json(5e-324).dump(), "5e-324");
  EXPECT_EQ(Json::array({NAN, -INFINITY}).dump(), "[null,null]");
}

TEST(Json, what_is_wrong_is_named_with_its_line) {
  expect_refused("", "line 1: The document is empty");
  expect_refused("{\"a\": 1,\n\n}", "line 3: Missing a name");
  expect_refused("[1, 2", "Missing a comma or ']'");
  expect_refused("{\"a\": 1", "Missing a comma or '}'");
  expect_refused("{\"a\" 1}", "Missing a colon");
  expect_refused("{\"a\": 1,\n \"b\": 2,\n \"a\": 3,\n \"c\": 4}", "line 3: 'a' is there twice");
  expect_refused("[1] 2", "must not be followed");
  expect_refused(std::string_view("[1]\0", 4), "zero byte");
  expect_refused("tru", "Invalid value");
  expect_refused("\"a\nb\"", "in string");
  expect_refused("\"a", "closing quotation mark");
  expect_refused("\"\\x\"", "Invalid escape");
  expect_refused("\"\\ud800\"", "surrogate pair");
  expect_refused("\"\\u00", "hex digit");
  expect_refused("[1, 2,]", "Invalid value");
  expect_refused("[1] // yes", "must not be followed");
}

TEST(Json, levels_are_limited) {
  const auto nested = [](std::size_t levels) {
    return std::string(levels, '[') + std::string(levels, ']');
  };
  EXPECT_TRUE(Json::parse(nested(32)).ok());
  expect_refused(nested(33), "more than 32 levels");
  expect_refused(std::string(10'000'000, '['), "more than 32 levels");
}

TEST(Json, many_fields_are_checked_for_doubles_in_no_time) {
  std::string text = "{";
  for (int i = 0; i < 100'000; ++i) text += "\"field " + std::to_string(i) + "\": 1, ";
  const auto began = std::chrono::steady_clock::now();
  EXPECT_EQ(parsed(text + "\"last\": 1}").size(), 100'001U);
  expect_refused(text + "\"field 7\": 1}", "'field 7' is there twice");
  // Comparing each with each took more than a minute.
  EXPECT_LT(std::chrono::steady_clock::now() - began, std::chrono::seconds(10));
}

TEST(Json, objects_and_arrays_are_built_as_they_are_written) {
  const std::map<std::string, int> counts{{"x", 1}, {"y", 2}};
  const std::array<double, 2> pair{0.5, 2};
  const Json json = {{"name", "n"},
                     {"on", true},
                     {"list", std::vector<int>{1, 2}},
                     {"pair", pair},
                     {"counts", counts},
                     {"nothing", nullptr},
                     {"perhaps", std::optional<double>()},
                     {"surely", std::optional<int>(3)},
                     {"in", {{"deep", {{"er", std::string_view("s")}}}}},
                     {"mixed", Json::array({1, "two", Json::array(), Json::object()})}};
  EXPECT_EQ(json.dump(), R"({"name":"n","on":true,"list":[1,2],"pair":[0.5,2.0],)"
                         R"("counts":{"x":1,"y":2},"nothing":null,"perhaps":null,"surely":3,)"
                         R"("in":{"deep":{"er":"s"}},"mixed":[1,"two",[],{}]})");
  EXPECT_EQ(parsed(json.dump()), json);
}

TEST(Json, values_grow) {
  Json json;
  json["b"] = 1;
  json["a"].push_back("x");
  json["a"].push_back({{"y", 2}});
  json["b"] = 2;
  EXPECT_EQ(json.dump(), R"({"b":2,"a":["x",{"y":2}]})");
  json.update({{"c", 3}, {"b", 4}});
  EXPECT_EQ(json.dump(), R"({"b":4,"a":["x",{"y":2}],"c":3})");
  json = {{"b", 2}, {"a", Json::array({"x", {{"y", 2}}})}};
  EXPECT_EQ(json.dump(1), "{\n \"b\": 2,\n \"a\": [\n  \"x\",\n  {\n   \"y\": 2\n  }\n ]\n}");
}

}  // namespace
}  // namespace tutti
