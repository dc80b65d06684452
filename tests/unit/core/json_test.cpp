#include "core/json.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace tutti {
namespace {

using testing::HasSubstr;

Json parsed(std::string_view text) {
  auto json = Json::parse(text);
  EXPECT_TRUE(json.ok()) << json.status().to_string();
  return json.ok() ? *json : Json();
}

void expect_refused(std::string_view text, const char* why) {
  const auto json = Json::parse(text);
  ASSERT_FALSE(json.ok()) << text;
  EXPECT_EQ(json.status().code(), Code::corrupt);
  EXPECT_THAT(json.status().message(), HasSubstr(why)) << text;
}

TEST(Json, values_of_every_kind_are_read) {
  const Json json =
      parsed(R"( {"a": [1, -2.5e3, 0, true, false, null], "b": {"c": "d"}, "e": []} )");
  ASSERT_EQ(json.fields.size(), 3U);
  const Json& list = *json.find("a");
  ASSERT_EQ(list.items.size(), 6U);
  EXPECT_EQ(list.items[1].number, -2500);
  EXPECT_TRUE(list.items[3].boolean);
  EXPECT_EQ(list.items[4].kind, Json::Kind::boolean);
  EXPECT_EQ(list.items[5].kind, Json::Kind::null);
  EXPECT_EQ(json.find("b")->find("c")->string, "d");
  EXPECT_EQ(json.find("nothing"), nullptr);
}

TEST(Json, escapes_are_resolved) {
  EXPECT_EQ(parsed(R"("\"\\\/\b\f\n\r\t")").string, "\"\\/\b\f\n\r\t");
  EXPECT_EQ(parsed(R"("\u0041\u00e4\u20ac")").string, "A\xc3\xa4\xe2\x82\xac");
}

TEST(Json, what_is_quoted_reads_back) {
  const std::string text = "a \"b\" \\ c\n\x01 \xc3\xa4";
  EXPECT_EQ(parsed(json_quoted(text)).string, text);
}

TEST(Json, numbers_are_only_those_of_the_grammar) {
  EXPECT_EQ(parsed("-0").number, 0);
  EXPECT_EQ(parsed("1E+2").number, 100);
  for (const char* text : {"01", "1.", ".5", "-", "+1", "1e", "nan", "0x1", "1e999", "Infinity"})
    EXPECT_FALSE(Json::parse(text).ok()) << text;
}

TEST(Json, what_is_wrong_is_named_with_its_line) {
  expect_refused("", "ends too early");
  expect_refused("{\"a\": 1,\n\n}", "line 3: a field has no name");
  expect_refused("[1, 2", "an array is not closed");
  expect_refused("{\"a\": 1", "an object is not closed");
  expect_refused("{\"a\" 1}", "no ':' after 'a'");
  expect_refused("{\"a\": 1, \"a\": 2}", "'a' is there twice");
  expect_refused("[1] 2", "after the end");
  expect_refused("tru", "a word of no meaning");
  expect_refused("\"a\nb\"", "control character");
  expect_refused("\"a", "not closed");
  expect_refused("\"\\x\"", "escape has no meaning");
  expect_refused("\"\\ud800\"", "\\u escape");
  expect_refused("\"\\u00", "\\u escape");
  expect_refused(std::string(100, '['), "nested too deeply");
}

}  // namespace
}  // namespace tutti
