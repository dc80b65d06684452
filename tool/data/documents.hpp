// tool/data/documents.hpp - the documents of text files, one after the other: a file each, or of FILE.jsonl the field
// "text" of each line.
#pragma once

#include <cstdint>
#include <fstream>
#include <optional>
#include <string>
#include <vector>

#include "tutti/status.hpp"

namespace tutti::tool {

class Documents {
 public:
  // io names a file that cannot be read, before any of them is.
  static Result<Documents> open(std::vector<std::string> paths, std::string field);

  // Nothing: that was the last. corrupt names file and line.
  Result<std::optional<std::string>> next();

  std::uint64_t bytes() const { return bytes_; }  // of all files
  std::uint64_t read() const { return read_; }

 private:
  Result<std::optional<std::string>> next_line();

  std::vector<std::string> paths_;
  std::string field_;
  std::size_t at_ = 0;  // the file that is open, or comes next
  std::ifstream file_;  // of lines
  std::uint64_t line_ = 0;
  std::uint64_t bytes_ = 0, read_ = 0;
};

}  // namespace tutti::tool
