#include <fmt/format.h>

#include <cstdio>

#include "tool/command.hpp"

namespace tutti::tool {

int complain(std::string_view command, std::string_view message, int code) {
  fmt::print(stderr, "tutti {}: {}\n", command, message);
  return code;
}

int complain(std::string_view command, const Status& status) {
  if (status.code() != Code::invalid_argument) return complain(command, status.message(), kFailed);
  return complain(command, fmt::format("{} (see tutti {} --help)", status.message(), command),
                  kBadInput);
}

}  // namespace tutti::tool
