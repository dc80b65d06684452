// Dumps of the flight recorder that somebody else has written.
#include "tool/trace/flight.hpp"

#include <gtest/gtest.h>

#include "core/json.hpp"

namespace tutti::tool::trace {
namespace {

Json dump_with(const char* name, Json value) {
  Json dump{{"tutti_recorder", 1}, {"rank", 1},
            {"ranks", 2},          {"pid", 3},
            {"reason", "r"},       {"unix_time_ns", 5000},
            {"time_ns", 100},      {"records", Json::array()}};
  dump[name] = std::move(value);
  return dump;
}

Code code_of(const char* name, Json value) {
  int size = 0;
  return parse_dump("file", dump_with(name, std::move(value)).dump(), &size).status().code();
}

TEST(Flight, numbers_out_of_range_are_corrupt) {
  constexpr std::int64_t kMost = std::numeric_limits<std::int64_t>::max();
  EXPECT_EQ(code_of("pid", 4), Code::ok);
  EXPECT_EQ(code_of("pid", kMost), Code::corrupt);
  EXPECT_EQ(code_of("rank", std::int64_t{1} << 40), Code::corrupt);
  EXPECT_EQ(code_of("ranks", kMost), Code::corrupt);
  EXPECT_EQ(code_of("ranks", -1), Code::corrupt);
  EXPECT_EQ(code_of("unix_time_ns", kMost), Code::corrupt);
  EXPECT_EQ(code_of("time_ns", -kMost), Code::corrupt);
}

}  // namespace
}  // namespace tutti::tool::trace
