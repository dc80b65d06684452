#include <cerrno>
#include <cstdio>
#include <cstring>

#include "core/output_file.hpp"
#include "tool/command.hpp"

namespace tutti::tool {

Status check_output(std::string_view flag, const std::string& path) {
  return path.empty() ? Status() : OutputFile::check(path).annotate(flag);
}

int finish_output(int code) {
  const bool had_failed = std::ferror(stdout) != 0;
  // What could not be written is still there, and fails again for the same reason.
  errno = 0;
  if (std::fflush(stdout) == 0 && !had_failed) return code;
  if (errno == EPIPE) return kReaderGone;
  std::fprintf(stderr, "tutti: standard output cannot be written%s%s\n", errno != 0 ? ": " : "",
               errno != 0 ? std::strerror(errno) : "");
  return code != kDone ? code : kFailed;
}

}  // namespace tutti::tool
