#include "tool/result_file.hpp"

#include <fmt/format.h>

#include "core/output_file.hpp"

namespace tutti::tool {

ResultFile::ResultFile(std::string path)
    : path_(std::move(path)),
      is_file_(!path_.empty() && path_ != "-" && OutputFile::is_replaced(path_)) {}

Status ResultFile::write(const std::string& text) const {
  if (path_.empty()) return {};
  if (path_ != "-") return write_file(path_, text);
  fmt::print("{}", text);
  return {};
}

}  // namespace tutti::tool
