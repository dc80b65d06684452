// tool/trace/output.hpp - an OutputFile of any length, piece by piece; gzipped if its name says so.
#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <utility>

#include "core/output_file.hpp"
#include "tutti/status.hpp"

namespace tutti::tool::trace {

class Output {
 public:
  // Code::io names the file. It is there under its name only after finish().
  static Result<std::unique_ptr<Output>> open(const std::string& path);
  ~Output();
  Output(const Output&) = delete;
  Output& operator=(const Output&) = delete;

  // Buffered; the first failure is reported by finish().
  void write(std::string_view text);
  Status finish();

 private:
  explicit Output(OutputFile file) : file_(std::move(file)) {}

  OutputFile file_;
  void* zipped_ = nullptr;  // gzFile
  std::string waiting_;     // of a file that is not zipped
  Status status_;
};

// Says on stderr how far something has come, if that is a terminal and it takes more than a moment.
class Progress {
 public:
  explicit Progress(std::string what);
  ~Progress();
  void at(std::size_t done, std::size_t all);

 private:
  std::string what_;
  bool shown_ = false;
  bool terminal_ = false;
  double began_s_ = 0;
  double last_s_ = 0;
};

}  // namespace tutti::tool::trace
