// support/parsed_json.hpp - text that a test expects to be JSON.
#pragma once

#include <gtest/gtest.h>

#include "core/json.hpp"

namespace tutti {

inline Json parsed(std::string_view text) {
  auto json = Json::parse(text);
  EXPECT_TRUE(json.ok()) << json.status().to_string() << "\n" << text.substr(0, 2000);
  return json.ok() ? *std::move(json) : Json();
}

}  // namespace tutti
